"""The gateway: HTTP and JSON for a cluster, by a process of its own that holds no right of its own.

    a request ──► server: connections, their limits ──► app: manners of HTTP ──► routes: which call
                                                                                     │
    an answer ◄── answers, problems, streams ◄── AsyncClientCore ◄── transcode: the request message

Others may use:

* config: its settings and limits.
* app: one request: from HTTP to a call, and back.
* server: the port, and how many connections it may have.
* wire: trusted proxies, and a path in front of all others.
* fetch: asks a provider of identities.
"""
