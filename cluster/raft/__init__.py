"""Agreement between the nodes: the only folder that knows PySyncObj.

Others may use:

* bench: how fast agreement is, three processes on loopback.
* catchup: how a snapshot is put in place.
* core: one node's part, without clock, socket or thread; the simulator drives it.
* disk: the files that consensus writes.
* driver: a node's consensus on one asyncio loop.
* faults: what ends a node, and what only refuses a call.
* founding: how one disk becomes a cluster of its own.
* journal: the log on disk, with term and vote.
* membership: who belongs to the cluster.
* message: what nodes send to each other, and its bytes.
* port: what consensus asks of its node, and what it notifies it of.
* record: the bytes of the journal.
* segment: one file of the journal.
* snapshot: folders of files with a manifest.
* state: the jobs for helper threads and the outbox.
* transport: links to the other nodes.
* walled: the roles of a node.
"""
