"""Agreement between the nodes: the only folder that knows PySyncObj."""
