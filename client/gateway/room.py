"""How much there is of what is bounded, for all callers and for those of one address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .problems import GatewayRefusal

ADVICE = "end some, or come back a little later"


class Room:
    """One thing of which there is not enough for everybody."""

    def __init__(self, name: str, maximum: int, by_address: int, unit: int = 1) -> None:
        """The limits are in units, which are shown; what is taken is not."""
        self._name, self._unit = name, unit
        self._maximum, self._by_address = maximum, by_address
        self._total = 0
        # Whoever holds nothing is not in here.
        self._held: dict[str, int] = {}

    def take(self, address: str, amount: int = 1, *, shared: bool = False) -> None:
        """Let an address have some more, or refuse it. A `shared` one stands for many callers."""
        held, total = self._held.get(address, 0) + amount, self._total + amount
        if held > self._by_address * self._unit and not shared:
            raise self._refused(f"{self._name}_by_address", self._by_address, address, 429)
        if total > self._maximum * self._unit:
            raise self._refused(self._name, self._maximum, "all", 503)
        self._held[address], self._total = held, total

    def give(self, address: str, amount: int = 1) -> None:
        """An address has done with it."""
        self._total -= amount
        left = self._held.pop(address) - amount
        if left:
            self._held[address] = left

    def taken_by(self, address: str) -> int:
        return self._held.get(address, 0)

    @contextmanager
    def taken(self, address: str, amount: int = 1) -> Iterator[None]:
        self.take(address, amount)
        try:
            yield
        finally:
            self.give(address, amount)

    @contextmanager
    def held(self, address: str, amount: int) -> Iterator[None]:
        """As `taken`, for what is there already, whether there is room or not."""
        self._held[address] = self._held.get(address, 0) + amount
        self._total += amount
        try:
            yield
        finally:
            self.give(address, amount)

    @contextmanager
    def growing(self, address: str) -> Iterator[Callable[[int], None]]:
        """Let an address have some more with each call of what is given, until the block ends."""
        held = 0

        def more(amount: int) -> None:
            nonlocal held
            self.take(address, amount)
            held += amount

        try:
            yield more
        finally:
            if held:
                self.give(address, held)

    def _refused(self, name: str, maximum: int, of: str, status: int) -> GatewayRefusal:
        return GatewayRefusal(
            "NODE_LIMIT",
            f"the gateway has no room: {name} is {maximum:,} and used up by {of}; {ADVICE}",
            {"limit": name, "maximum": str(maximum), "of": of},
            status=status,
        )
