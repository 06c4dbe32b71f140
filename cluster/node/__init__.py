"""One node: its copy of the state, its leader's loop, its workers, and what it knows of others.

Others may use:

* applier: the copy of the state: what consensus applies, checkpoints and restores.
* backoff: how long to wait between tries.
* backup: a state as an archive, and an archive as a state.
* bootstrap_token: the secret that makes the first access token.
* admin_recovery: the way back when every admin's secret is lost.
* build: which sources, zones and libraries this process runs on.
* clock: the wall clock, which jumps only when others agree.
* condition: how slow its disk was, how long its certificates last, who came to lead and why.
* damage_watch: looks for files that are not what was written; chaos plants its own state there.
* damage: what becomes of files that are not what was written.
* event_feed: the events of the cluster, read from the journal.
* figure_history: how the cluster has done of late.
* figure_watch: counts that, and takes it from the leader.
* hello: what a worker says of itself, checked.
* leader_loop: gathers, decides one change, answers.
* loop_steps: how long steps of the loop last, and what it has done.
* limits: what callers may hold of a node.
* memory: gives back what was freed.
* node: all of this together, as services know it.
* node_spec: what a node must know to start.
* peer_info: what nodes send each other of themselves.
* pending: a request in a change, and whoever waits for it.
* refusals: what the server itself refuses.
* removal: the note that the cluster removed this node.
* replacement: what takes the place of the state when a backup is put back.
* restoring: puts it there, while the node runs.
* secret_keys: the keys under which secrets for targets are encrypted.
* troubles: what was set aside or failed while this node led.
* virtual_clock: the clock of a test's cluster.
* worker_session: one worker as the leader knows it.
* worker_sink: where messages for a worker go.
* worker_sessions: workers as the leader knows them.
"""
