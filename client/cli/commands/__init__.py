"""The commands, one group of them each; `raftsched.client.cli` has the table."""
