"""The gateway: HTTP and JSON for a cluster, by a process of its own that holds no right of its own.

    a request ──► server: connections, their limits ──► app: manners of HTTP ──► routes: which call
                                                                                     │
    an answer ◄── answers, problems, streams ◄── AsyncCaller ◄── transcode: the request message

* routes: the table of paths, made from the annotations of the contracts.
* fields, transcode: from path, query and body to the request of a call, all faults at once.
* plain: the short form of a job that people type first.
* problems, answers, streams: what is sent back.
* app, server: one request; the port. room: how much there is of what is bounded.
"""
