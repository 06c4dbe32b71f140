"""The commands `raftsched bench` and `raftsched chaos`."""
