"""The calls of the asynchronous client, by service; `generate.py` makes all but what is by hand.

By hand are `run.py`, `service.py` and `*_by_hand.py`. `blocking/` is made from all of these files.
"""
