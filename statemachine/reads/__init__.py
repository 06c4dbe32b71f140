"""Questions. Nothing here writes.

Others may use:

* reads: which read answers which request.
* audit: the proof that no scheduled time was lost.
* events: what a change made happen.
* waiting: what waits for workers, for figures.
"""
