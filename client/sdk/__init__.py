"""What a program says to a cluster, and what it hears: calls of any kind, and values of Python.

It knows the contracts and nothing else of ours. Others may use:

* async_core: a client without its typed calls: asks the right node, and again where that helps.
* core: the same for the blocking client, made from it.
* backoff: how long to wait after failures in a row.
* course: one call's way to its answer, without I/O.
* endpoints: the nodes a client knows, and which of them it asks first.
* refusals: from a status to what it means.
* links: how a connection is made: TLS, tokens, metadata.
* errors: why a call did not do what was asked.
* options: what may be said about any call.
* readable: messages on one line.
* values: instants, lengths of time, payloads.
* lengths: lengths of time as people write them.
* ranges: numbers and texts that fields can hold.
* days: days that a calendar leaves out.
* schedules: when a job happens.
* policies: what a job does when something is late, fails or takes too long.
* specs: a job.
* resources: namespaces, alerts, calendars, queues, secrets and access tokens.
* imports: many jobs, cut into requests, and on from where it stopped.
* triggers: one, and many that are cut into requests.
* results: what the handler of a run returned.
* models: models of pydantic, known by their methods.
* trace: which trace the code that runs now belongs to.
* tracing: spans by OpenTelemetry: switched on, and named in logs.
"""
