"""The state is checked against itself.

Others may use:

* verify: everything that can be computed, computed anew and mended.
"""
