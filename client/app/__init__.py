"""What a program declares its jobs and tasks with: above the client and the worker.

Others may use:

* app: the app itself.
* clients: its connections.
* task: a function that was declared.
* entries: one run that is wanted.
* handle: the run that came of it.
* middleware: what stands around runs and calls.
* codecs: what turns payloads on their way.
* dependencies: what handlers are given by its type.
* sync: what declaring would change.
* views: jobs, runs and leases as plain values.
"""
