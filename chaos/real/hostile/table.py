"""All attacks, in the order in which they are shown."""

from __future__ import annotations

from . import (
    alone,
    bodies,
    frames,
    graphs,
    hands,
    headers,
    loops,
    middles,
    questions,
    rounds,
    sockets,
    tenants,
    times,
    web_bodies,
    web_lines,
    web_requests,
    workers,
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
    workers,
    graphs,
    middles,
    times,
    loops,
    rounds,
    questions,
    web_lines,
    web_requests,
    web_bodies,
    hands,
    alone,
)
