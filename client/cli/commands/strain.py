"""What holds a node up and what it turns away: in words, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..session import many
from ..times import now_ms

if TYPE_CHECKING:
    from ..messages import cluster_pb2
    from ..render.formats import ValueFormats

RECENT_MS = 600_000  # As for alerts.
STEPS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Strain:
    """One kind of it."""

    label: str
    text: str
    then: str
    # It is of late, or a limit that somebody may want to raise.
    matters: bool

    def __str__(self) -> str:
        return f"{self.text}. {self.then[:1].upper()}{self.then[1:]}."


def strains(seen: cluster_pb2.ClusterStatus, formats: ValueFormats) -> Iterator[Strain]:
    """Of one node since its process began, as far as there is any."""
    if seen.long_steps and seen.last_long_steps:
        last = seen.last_long_steps[0]
        yield Strain(
            "Loop",
            f"{many(seen.long_steps, 'step')} of {seen.node} lasted too long, while it did nothing "
            f"else; the last {seconds(last)} at {formats.time(last.time)}: {last.what}",
            f"if it comes again, see whether CPU and disk of {seen.node} are shared, and report "
            "what its log names",
            now_ms() - last.time.ToMilliseconds() < RECENT_MS,
        )
    limits = {name: count for name, count in seen.refused.items() if name.islower()}
    if limits:
        yield Strain(
            "Limits",
            f"{seen.node} refused {many(sum(limits.values()), 'call')} by its limits: "
            f"{listed(limits)}",
            f"call less often, or raise those under [limits] of {seen.node}; its log says who "
            "was refused",
            True,
        )
    others = {name: count for name, count in seen.refused.items() if name not in limits}
    if others:
        yield Strain(
            "Refused",
            f"{seen.node} refused {many(sum(others.values()), 'call')}: {listed(others)}",
            "its log says who called",
            False,
        )


def steps(seen: cluster_pb2.ClusterStatus, formats: ValueFormats) -> Iterator[str]:
    """The last steps that were too long, newest first."""
    for step in seen.last_long_steps[:STEPS_SHOWN]:
        yield f"{formats.time(step.time)}  {seconds(step):>7}  {step.what}"


def seconds(step: cluster_pb2.LongStep) -> str:
    return f"{step.duration.ToMilliseconds() / 1000:.2f} s"


def listed(counts: dict[str, int]) -> str:
    """The most first."""
    order = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{name} {count:,}" for name, count in order)
