"""How much one decision may do.

Bytes and items are counted by the view. Time is not for the rules to read: whoever asks for a
decision hands in a budget, and the rules ask it between two pieces of work (`View.is_full`). The
leader's budget is a clock; the simulator's counts the questions, so that a seed replays exactly.

Requests of one kind have a budget together (`Share`), and the first of each kind is always asked,
so no kind keeps another out. Requests for which nothing is left are answered `LEFT` and are asked
again.
"""

from __future__ import annotations

from collections.abc import Callable

# Whether the decision has used up what it may; once it has, the answer stays so.
Budget = Callable[[], bool]


# For decisions that nobody waits behind: tests, benchmarks, trials. `bool()` is False, and costs a
# run no call of Python.
unlimited: Budget = bool


def until(
    seconds: Callable[[], float], at: float, least: int = 0, least_until: float = 0.0
) -> Budget:
    """Spent when the clock has come to an instant; or to a later one, before so many steps."""
    if not least:
        return lambda: seconds() >= at
    asked = 0

    def is_spent() -> bool:
        nonlocal asked
        asked += 1
        return seconds() >= (at if asked >= least else least_until)

    return is_spent


class Share:
    """What requests of one kind may take of a decision together, counted from the first of them.

    That one is always asked, whatever those before it took; so each kind comes forward in each
    change, and none waits for all the work of another.
    """

    def __init__(self, new_budget: Callable[[], Budget], most_bytes: int = 0) -> None:
        """`most_bytes`: what they may write in all; 0: what the change has room for."""
        self._new_budget, self._left_bytes = new_budget, most_bytes
        self._is_limited = bool(most_bytes)
        self._time: Budget | None = None
        # How much the decision has written, and how much that was when it last began.
        self._size: Callable[[], int] = int
        self._began_size = 0

    def budget(self, size: Callable[[], int]) -> Budget:
        """`size` says how much the decision has written. Whoever begins again has what is left."""
        if self._time is None:
            self._time = self._new_budget()
        if not self._is_limited:
            return self._time
        self._left_bytes -= self._size() - self._began_size
        self._size, self._began_size = size, size()
        # Not kept here: it holds this.
        return self._is_over

    def restart(self) -> None:
        """What was done with it was dropped: it is there as a whole again."""
        self._time, self._size, self._began_size = None, int, 0

    @property
    def is_spent(self) -> bool:
        """It was begun, and nothing is left of it."""
        return self._time is not None and self._is_over()

    def _is_over(self) -> bool:
        assert self._time is not None, "it was never begun"
        written = self._size() - self._began_size
        return self._time() or (self._is_limited and written >= self._left_bytes)


class Steps:
    """Spent after so many questions."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0
