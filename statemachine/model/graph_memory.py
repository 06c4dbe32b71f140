"""What was found in the graph of jobs that wait for each other, while that stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class GraphMemory:
    """It outlives a decision; whoever changes the graph begins another one. flows.graph fills it,
    within its limits."""

    # By first job, all that wait for it; None: too many.
    led: dict[int, set[int] | None] = field(default_factory=dict)
    # By job, those that it waits for, as its spec lists them; None for one that is not there.
    sources: dict[int, list[int | None]] = field(default_factory=dict)
