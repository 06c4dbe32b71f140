"""What ends a node, and what only refuses a call."""

from __future__ import annotations


class Fatal(Exception):
    """The node must stop: going on could break a promise. Nothing may swallow this."""


class Broken(Fatal):
    """An invariant of the protocol does not hold on this node."""


class Damaged(Fatal):
    """The disk returned something that was promised and is not there any more."""


class JournalDamaged(Damaged):
    """The journal lacks what this node acknowledged, and a start may not see it by itself."""


class Replaced(Fatal):
    """The cluster has another disk under the name of this node."""


class DiskFailed(Fatal):
    """The disk refused a write or a sync. After that its page cache cannot be believed."""


class FileLimit(Fatal):
    """A file would grow over the limit of this process; what was promised before is on disk."""


class Unsupported(Fatal):
    """The log holds something only a newer release understands."""


class DiskFull(Exception):
    """There is no space, or no descriptor; nothing was lost, and it may be tried again."""


class CallRefused(Exception):
    """The call was not carried out and nothing changed; the text says what to do."""


def require(claim: bool, story: str) -> None:
    """Assert in production too: `python -O` must not remove what stops a wrong node."""
    if not claim:
        raise Broken(story)
