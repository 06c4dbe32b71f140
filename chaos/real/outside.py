"""A history in the words of others, so that their checkers can check it.

* `.edn`: operations as Jepsen writes them, one map a line, by time: `:invoke`, then `:ok`, `:fail`
  or `:info` (nobody knows). The key of each is a job's name, as `jepsen.independent` has it: a
  value is `[key value]`. A process that does not know the outcome is never heard of again; its
  client goes on as another. Faults are operations of `:nemesis`.
* `.json`: what Porcupine's `CheckOperations` takes, a list of `porcupine.Operation` with the names
  of its fields. An outcome that nobody knows returns when the history is over.

The calls are those on records, which the harness checks too: each record is a register that holds
a value or, where there is no such job, none. `create` and `update` write; that they are refused
where the job is there, or not there, is not written: a checker of registers asks for a little less.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .history import OK, REFUSED, UNKNOWN, ClientCall, FaultSpan, Observations

EDN, JSON = ".edn", ".json"
WRITES = {"create", "update", "delete"}
# The checker of records knows them by these; triggers and pauses are no registers.
ON_RECORDS = {*WRITES, "get"}


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One line of a Jepsen history, without its number."""

    ns: int
    order: int  # Of lines at one instant: what ends comes before what begins.
    fields: dict[str, Any]


def write_history(path: Path, seen: Observations) -> int:
    """Write the calls on records as the name of the file says; return how many."""
    calls = sorted(
        (call for call in seen.calls if call.what in ON_RECORDS), key=lambda call: call.began
    )
    zero = min((call.began for call in calls), default=0.0)
    if path.suffix == EDN:
        lines = moments(calls, seen.faults, zero)
        path.write_text("".join(f"{line}\n" for line in edn_lines(lines)))
    else:
        path.write_text(json.dumps(operations(calls, zero), indent=0) + "\n")
    return len(calls)


def ns(instant: float, zero: float) -> int:
    return round((instant - zero) * 1e9)


def processes(calls: Sequence[ClientCall]) -> list[int]:
    """A number for the caller of each: a client, until it does not know what came of a call."""
    numbers: dict[str, int] = {}
    count, found = 0, []
    for call in calls:
        if call.client not in numbers:
            numbers[call.client] = count
            count += 1
        found.append(numbers[call.client])
        if call.outcome == UNKNOWN:
            del numbers[call.client]
    return found


def value_of(call: ClientCall) -> str | None:
    return None if call.what == "delete" else call.value or None


def moments(
    calls: Sequence[ClientCall], faults: Iterable[FaultSpan], zero: float
) -> list[HistoryLine]:
    found = []
    types = {OK: "ok", REFUSED: "fail", UNKNOWN: "info"}
    for call, process in zip(calls, processes(calls), strict=True):
        is_read = call.what == "get"
        base = {"process": process, "f": Keyword("read" if is_read else "write")}
        asked = [call.job, None if is_read else value_of(call)]
        answered = [call.job, value_of(call) if call.outcome == OK else asked[1]]
        more = {"call": Keyword(call.what)}
        begin = {**base, "type": Keyword("invoke"), "value": asked, **more}
        end = {**base, "type": Keyword(types[call.outcome]), "value": answered, **more}
        if call.reason:
            end["error"] = call.reason
        found.append(HistoryLine(ns(call.began, zero), 1, begin))
        found.append(HistoryLine(ns(call.ended, zero), 0, end))
    for fault in faults:
        for at, word in ((fault.began, "start"), (fault.ended, "stop")):
            about: dict[str, Any] = {"process": Keyword("nemesis"), "type": Keyword("info")}
            about |= {
                "f": Keyword(f"{word}-{fault.what}".replace(" ", "-")),
                "value": fault.target or None,
            }
            found.append(HistoryLine(ns(at, zero), 2, about))
    return sorted(found, key=lambda moment: (moment.ns, moment.order))


def operations(calls: Sequence[ClientCall], zero: float) -> list[dict[str, object]]:
    """Refused calls are left out: they are known to have done nothing."""
    end = ns(max((call.ended for call in calls), default=zero), zero) + 1
    return [
        {
            "ClientId": process,
            "Input": {"op": "get" if call.what == "get" else "put", "key": call.job,
                      "value": None if call.what == "get" else value_of(call)},
            "Call": ns(call.began, zero),
            "Output": {"value": value_of(call) if call.what == "get" else None,
                       "unknown": call.outcome == UNKNOWN},
            "Return": end if call.outcome == UNKNOWN else ns(call.ended, zero),
        }
        for call, process in zip(calls, processes(calls), strict=True)
        if call.outcome != REFUSED
    ]  # fmt: skip


# EDN, as much of it as this needs.


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword."""

    name: str


def edn_lines(moments: Iterable[HistoryLine]) -> Iterator[str]:
    for index, moment in enumerate(moments):
        yield edn({"index": index, "time": moment.ns, **moment.fields})


def edn(value: object) -> str:
    if value is None:
        return "nil"
    if isinstance(value, Keyword):
        return f":{value.name}"
    if isinstance(value, dict):
        return "{" + ", ".join(f":{key} {edn(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + " ".join(map(edn, value)) + "]"
    # Strings of EDN are escaped as those of JSON are, but for what lies behind the basic plane.
    return json.dumps(value, ensure_ascii=False)
