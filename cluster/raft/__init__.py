"""Agreement between the nodes: the only folder that knows PySyncObj.

Others may use:

* adapter: the roles of a node, as PySyncObj names them.
* bench: how fast agreement is, three processes on loopback.
* bench_node: one of these processes.
* disk: the files that consensus writes.
* disk_errors: what an error of the operating system means for a node.
* driver: a node's consensus on one asyncio loop.
* faults: what ends a node, and what only refuses a call.
* force_new_cluster: how one disk becomes a cluster of its own.
* journal: the log on disk, with term and vote.
* link: one connection with another node.
* manifest: what a snapshot holds.
* membership: who may belong to a cluster, and how that is written down.
* message: what nodes send to each other, and its bytes.
* outbox: what waits for the disk, and the jobs for helper threads.
* port: what consensus asks of its node, and what it notifies it of.
* raft: one node's part, without clock, socket or thread; the simulator drives it.
* record: the bytes of the journal.
* segment: one file of the journal.
* snapshot: the snapshots on disk.
* transport: links to the other nodes.

The simulator exchanges parts of `raft` for broken ones:

* applying: how committed entries get to the machine.
* election: who leads.
* follower: what is done with what the leader sends.
* member_changes: how a leader changes the members.
* proposals: who waits for which entry.
* reads: reads that see all that was committed before.
* replication: how a leader's log gets to the others, and its term of office.
* snapshot_receiver: how a snapshot is fetched and put in place.
"""
