"""The typed calls, by service: `aio/` is written, `blocking/` is made from it."""
