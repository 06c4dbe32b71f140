# Made from aio/events.py by calls/generate.py; write there.
"""Follow what happens, or look at what has happened."""

from __future__ import annotations

from .events_by_hand import EventsByHand


class Events(EventsByHand):
    """Follow what happens, or look at what has happened."""
