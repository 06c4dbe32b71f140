"""The server: one node of a raftsched cluster."""
