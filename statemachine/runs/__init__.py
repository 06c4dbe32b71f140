"""The life of a run; where it may stand is in model/phases.py.

Overlap and rests look at the runs under way; those that are held are not, so a verdict needs no
walk: a job counts both. Runs for later stand at the instants at which they are due, so they are
passed by; each is judged when it is due, and what was forced goes then as well. The overlap policy
skips scheduled times only. What somebody triggered, and what a flow brings, waits where it says no,
and gives way to nothing while it is held, save under REPLACE. Each end lets one go if there is room
then; where a policy allows more than before, a timer of the job does. At most 10,000 runs of a job
wait so; more triggers are refused.

The quota of runs of a namespace counts what is under way likewise. Where it is used up, scheduled
times are skipped and triggers refused; what catches up, runs for later and steps of flows wait.
Their jobs stand in one wait queue of the namespace, each once.

Where a run takes the place of others (REPLACE, QUEUE_ONE), these may be more than fit into a
change. Then it is held, a `RoomRecord` says how far making room for it has come, and a timer goes
on with it. What the schedules bring meanwhile waits until that is done, so it comes to the same as
if all had gone at once. A run that somebody triggers meanwhile is judged at once and takes the
place of the one that waits.

A run counts under the concurrency key that its job has when it is tried, literally or read from
the payload it will hand out (`concurrency_key.of`), or under the one its trigger named.

A run that has not started at its start deadline is skipped, ready or held; a backfill and a dead
letter that was requeued are late because somebody wants them, and have none. How long runs are kept
is asked when they end and once more when their time has come, so a namespace may change it; the
ledger says up to where it was purged, so an audit expects nothing before.

Others may use:

* move: the only way from phase to phase.
* runs: a run is made, held back and let go on, cancelled, and ends.
* history: runs that have ended.
* overlap: what happens while other runs of the job are under way.
* unique_keys: which run holds a business key.
* lanes: the order of ready runs.
* slots: how many runs of a job or key may be leased at once.
* admission: runs that wait for a slot go back to their lane.
* grants: runs are given to workers.
* reports: what workers say of one lease.
* recorded: what was recorded of it, and what a word hears that comes too late.
* warned: runs that succeeded with a warning are counted.
* leases: all leases of a session.
* leased_secrets: what a lease needs of the secrets, encrypted.
* attempts: how one attempt ended, in a call of its own.
* timeouts: when something comes to a run by itself.
* set_aside: jobs that are set aside, and how they come back.
"""
