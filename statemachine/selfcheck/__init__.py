"""The state is checked against itself.

Others may use:

* verify: everything that can be computed, computed anew.
* invariants: what must hold beside that: nothing is lost, doubled or stuck.
* mend: what differs, put right a piece at a time.
"""
