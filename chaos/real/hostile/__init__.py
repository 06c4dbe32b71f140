"""Hostile callers, clumsy jobs and damaged disks, one attack after the other, and the checks."""
