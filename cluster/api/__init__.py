"""The gRPC face of a node.

Others may use:

* server: all services of the contracts on one port.
"""
