# Made from aio/__init__.py by generate.py; write there.
"""The calls of the blocking client, by service, made from `aio/`."""
