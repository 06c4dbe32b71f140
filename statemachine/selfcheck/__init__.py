"""The state is checked against itself.

Others may use:

* verify: everything that can be computed, computed anew.
* mend: what differs, put right a piece at a time.
"""
