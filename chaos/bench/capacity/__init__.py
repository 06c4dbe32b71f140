"""What things cost on this machine, and what a cluster of such machines holds."""
