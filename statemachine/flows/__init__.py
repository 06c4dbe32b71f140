"""Jobs that wait for others.

Others may use:

* graph: which job waits for which.
* waves: waves of runs through jobs that depend on each other.
"""
