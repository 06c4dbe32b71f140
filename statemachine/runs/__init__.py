"""The life of a run.

Others may use:

* runs: a run begins, becomes ready or is held back, and ends.
* overlap: what happens while other runs of the job are under way.
* lanes: the order of ready runs.
* slots: what a lease takes and gives back.
* grants: runs are given to workers.
* reports: what workers say of one lease.
* leases: all leases of a session.
* attempts: how one attempt ended, in a call of its own.
* set_aside: jobs that are set aside, and how they come back.
"""
