"""`raftsched dev`: a cluster of real processes on this machine, to try things on."""
