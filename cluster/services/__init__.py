"""The gRPC face of a node."""
