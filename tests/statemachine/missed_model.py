"""What becomes of times that are due, told one time at a time: the model of `misfire.choose`."""

from __future__ import annotations

from typing import NamedTuple


class Time(NamedTuple):
    """A time that a job has to decide on."""

    due_ms: int
    scheduled_ms: int
    # "open", "excluded" or "skipped".
    kind: str


def fates(
    times: list[Time],
    rule: str,
    maximum: int,
    now_ms: int,
    grace_ms: int,
    room: int | None,
    *,
    is_full: bool = False,
    is_behind: bool = False,
    deadline_ms: int = 0,
) -> dict[int, str]:
    """What becomes of each, by scheduled time. `room`: how many runs may begin; None: all.
    `is_full`: a quota lets none begin. `is_behind`: older ones wait and go first. `deadline_ms`: 0
    for none."""
    found = {time.scheduled_ms: time.kind for time in times}
    may_run = sorted(time for time in times if time.kind == "open")
    if deadline_ms:
        expired = [time for time in may_run if now_ms - time.due_ms >= deadline_ms]
        found |= {time.scheduled_ms: "expire" for time in expired}
        may_run = may_run[len(expired) :]
    late = [time.scheduled_ms for time in may_run if now_ms - time.due_ms > grace_ms]
    in_time = [time.scheduled_ms for time in may_run if now_ms - time.due_ms <= grace_ms]
    too_many = room is not None and not is_full and 0 < room < len(in_time)
    if rule == "ALL" and (late or too_many):
        # All of them one behind the other; what was not missed uses up no maximum.
        for at_ms in late + in_time:
            found[at_ms] = "wait"
        for at_ms in late[: max(0, len(late) - maximum)]:
            found[at_ms] = "miss"
        return found
    for at_ms in late:
        found[at_ms] = "miss" if rule == "SKIP" else "coalesce"
    # What comes behind one that waits waits as well.
    no_room = room == 0 or is_full
    waits = bool(late) and (rule == "EARLIEST" or (rule == "LATEST" and no_room))
    waits = waits or is_behind
    for at_ms in in_time:
        found[at_ms] = "wait" if waits else "run"
    if room is not None and (room > 0 or waits):
        # They are one choice.
        for at_ms in in_time[: max(0, len(in_time) - max(room, 1))]:
            found[at_ms] = "coalesce"
    if rule == "EARLIEST" and late:
        found[late[0]] = "wait"
    if rule == "LATEST" and late and not in_time:
        found[late[-1]] = "wait"
    return found
