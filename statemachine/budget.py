"""How much one decision may do.

Bytes and items are counted by the view. Time is not for the rules to read: whoever asks for a
decision hands in a budget, and the rules ask it between two pieces of work (`View.is_full`). The
leader's budget is a clock; the simulator's counts the questions, so that a seed replays exactly.
"""

from __future__ import annotations

from collections.abc import Callable

# Whether the decision has used up what it may; once it has, the answer stays so.
Budget = Callable[[], bool]


# For decisions that nobody waits behind: tests, benchmarks, trials. `bool()` is False, and costs a
# run no call of Python.
unlimited: Budget = bool


def until(seconds: Callable[[], float], at: float) -> Budget:
    """Spent when the clock has come to an instant."""
    return lambda: seconds() >= at


class Share:
    """What requests of one kind may take of a decision together, counted from the first of them.

    That one is always asked, whatever those before it took; so each kind comes forward in each
    change, and none waits for all the work of another.
    """

    def __init__(self, new_budget: Callable[[], Budget], most_bytes: int = 0) -> None:
        """`most_bytes`: what they may write in all; 0: what the change has room for."""
        self._new_budget, self._most_bytes = new_budget, most_bytes
        self._budget: Budget | None = None

    def budget(self, size: Callable[[], int]) -> Budget:
        """`size` says how much the decision has written."""
        if self._budget is None:
            is_spent = self._budget = self._new_budget()
            if self._most_bytes:
                most = size() + self._most_bytes
                self._budget = lambda: is_spent() or size() >= most
        return self._budget


class Steps:
    """Spent after so many questions."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0
