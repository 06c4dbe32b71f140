"""Proof under fault: the seeded simulator and the harness on real processes."""
