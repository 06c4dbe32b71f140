"""The calls of the asynchronous client, by service.

`raftsched.client.calls.blocking` is made from these files by `generate.py`: write here, then run
it.
"""
