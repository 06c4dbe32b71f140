"""All attacks, in the order in which they are shown."""

from __future__ import annotations

from . import (
    alone,
    bodies,
    crews,
    frames,
    graphs,
    hands,
    headers,
    loops,
    questions,
    sockets,
    tenants,
    times,
)
from .attack import ATTACKS as ATTACKS
from .attack import Attack as Attack

# Importing them is what fills the table.
MODULES = (
    bodies,
    tenants,
    sockets,
    headers,
    frames,
    crews,
    graphs,
    times,
    loops,
    questions,
    hands,
    alone,
)
