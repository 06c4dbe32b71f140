"""Other systems under the same load, for `raftsched bench compare`."""
