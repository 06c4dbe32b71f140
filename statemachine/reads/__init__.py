"""Questions. Nothing here writes.

Others may use:

* reads: which read answers which request.
* audit: the proof that no scheduled time was lost.
* events: what a change made happen.
* forecast: what is due, against what workers can do.
* firings_ahead: the count of what is due, for whoever keeps one.
* waiting: what waits for workers, for figures.
"""
