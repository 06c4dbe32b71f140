"""The worker: pulls runs and carries them out.

Others may use:

* worker: registration, settings, signals, the order of stopping.
* context: what a handler knows and may say.
* handlers: a function's annotations, and how the payload becomes its arguments.
* outcomes: what a handler may raise or return.
* executors: handlers that are there already: HTTP, gRPC, shell.
* runner: how a handler is called, for tests without a cluster.
* redaction: takes secrets out of what is said.
* connection: how a worker holds its stream, for programs that stand for many.
"""
