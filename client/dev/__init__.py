"""`raftsched dev`: a cluster of real processes on this machine, to try things on.

Others may use:

* cluster: the processes, from start to stop.
* ports: ports for them: the ones one expects, or the next that are free.
* screen: what is printed.
"""
