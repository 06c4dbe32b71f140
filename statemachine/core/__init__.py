"""What everything stands on: limits, refusals, time, and the store.

Others may use:

* limits: every limit of the rules, with its unit and its reason.
* rejection: how a rule refuses.
* field_fault: what is wrong with one field of a request.
* instants: instants and durations, inside and on the wire.
* budget: how much one decision may do.
* masks: field masks of updates.
* filters: filters of lists.
* pages: pages of lists.
* store: the port to where state lives, and the store in memory.
* rocks_store: the store on disk.
"""
