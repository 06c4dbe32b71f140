"""The harness on real processes."""
