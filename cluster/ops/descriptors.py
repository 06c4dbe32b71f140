"""How many files and connections a node may have open at once."""

from __future__ import annotations

import resource

# What a node asks for: 20,000 streams come by connections that are mostly shared. More would only
# make it slower to end, since a child closes all it could have inherited.
WANTED = 65_536
# Tables, segments, links and a few dozen clients; with less it works and turns many away.
FEW = 1_024


def raise_limit() -> int:
    """Raise the soft limit as far as the hard one allows; the limit there is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return WANTED
    allowed = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(soft, allowed)
