"""The headers of a request, looked up by names in small letters."""

from __future__ import annotations

from collections.abc import Iterable


class Headers:
    """As they came; of those that came more than once `get` has the first."""

    __slots__ = ("_first", "_raw", "twice")

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._raw = [(name.decode("latin-1"), text.decode("latin-1")) for name, text in raw]
        self._first: dict[str, str] = {}
        # The names that came more than once.
        self.twice: set[str] = set()
        for name, text in self._raw:
            if name in self._first:
                self.twice.add(name)
            else:
                self._first[name] = text

    def get(self, name: str, default: str = "") -> str:
        return self._first.get(name, default)

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def all(self, name: str) -> list[str]:
        """Every value that came under a name."""
        return [text for one, text in self._raw if one == name]
