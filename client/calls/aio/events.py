# Made from the contracts and catalog.toml by generate.py; write there.
"""Follow what happens, or look at what has happened."""

from __future__ import annotations

from .events_by_hand import AsyncEventsByHand


class AsyncEvents(AsyncEventsByHand):
    """Follow what happens, or look at what has happened."""
