"""How old the applied state may be, by this node's own clock."""

from __future__ import annotations


class Freshness:
    """The leader echoes the time we last sent it. Its commit index of that moment included
    everything committed up to then, if it was still followed by a majority; `age` accounts for
    the time it cannot be sure of that.
    """

    def __init__(self) -> None:
        self.as_of = float("-inf")
        self._pending: tuple[int, float] | None = None

    def heard(self, commit: int, as_of: float, applied: int) -> None:
        if commit <= applied:
            self.as_of = max(self.as_of, as_of)
        elif self._pending is None:
            self._pending = (commit, as_of)

    def applied(self, index: int) -> None:
        if self._pending is not None and self._pending[0] <= index:
            self.as_of = max(self.as_of, self._pending[1])
            self._pending = None
