"""The calls of the blocking client, by service, made from `aio/`."""
