"""Measuring a cluster: real processes on one machine."""
