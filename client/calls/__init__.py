"""The typed calls, by service: `client.jobs.create` and the others.

Others may use:

* aio: those of `AsyncClient`.
* blocking: those of `Client`, made from them.
"""
