"""A cluster of processes on this machine: the one way to start one.

Everybody may use it, a client too: it knows the standard library alone, and no other package.

Others may use:

* lines: what a process writes, on an asyncio loop.
* nodes: nodes as processes: addresses, command lines, start, stop, who is ready.
* ports: ports of this machine that are free.
* process: a program beside this one, which ends with it.
* systemd: a word to systemd, where it started this process, and the sign that it lives.
* virtual_clock: the time of a cluster for tests, in a file that its nodes have mapped.
"""
