"""The seeded simulator: real consensus on simulated links, disks and clocks."""
