"""Between Python's values and those of the contracts: instants, lengths of time, payloads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, overload

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from ...proto.v1 import common_pb2, run_pb2
from .errors import Forbidden
from .models import from_json, to_json

Payload = common_pb2.Payload
# A length of time: a timedelta, or seconds.
Length = timedelta | float
# As long as a message can say.
LONGEST_S = 315_576_000_000
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
Kind = TypeVar("Kind")


class ListCount(NamedTuple):
    """How many there are; where it is not exact, at least so many."""

    number: int
    is_exact: bool


def timestamp(instant: datetime | None) -> Timestamp | None:
    """An instant for the wire; a datetime without a zone could be any, so it is refused."""
    if instant is None:
        return None
    if not isinstance(instant, datetime):
        raise TypeError(f"{instant!r} is no instant; write datetime(2027, 1, 1, 9, tzinfo=UTC)")
    if instant.tzinfo is None:
        raise ValueError(
            f"{instant!r} has no time zone; write datetime(..., tzinfo=ZoneInfo('Europe/Berlin'))"
        )
    answer = Timestamp()
    answer.FromDatetime(instant.astimezone(UTC))
    return answer


def instant(stamp: Timestamp) -> datetime:
    """A datetime in UTC."""
    return stamp.ToDatetime(tzinfo=UTC)


def duration(length: Length | None) -> Duration | None:
    """A length of time for the wire, to the millisecond."""
    if length is None:
        return None
    if not isinstance(length, timedelta | int | float) or isinstance(length, bool):
        raise TypeError(f"{length!r} is no length of time; write seconds, or timedelta(minutes=5)")
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if not abs(seconds) <= LONGEST_S:
        raise ValueError(f"{length!r} is no length of time below 10,000 years")
    answer = Duration()
    answer.FromMilliseconds(round(seconds * 1000))
    return answer


def revision(place: str | common_pb2.Revision) -> common_pb2.Revision:
    """Read "change.position"."""
    if isinstance(place, common_pb2.Revision):
        return place
    change, _, position = place.partition(".")
    if not change.isdecimal() or not (position or "0").isdecimal():
        raise ValueError(f"revision {place!r} is not 'change.position', such as '17.3'")
    return common_pb2.Revision(change=int(change), position=int(position or 0))


def trace_context(carrier: Mapping[str, str]) -> run_pb2.TraceContext | None:
    """From headers of W3C Trace Context, as a propagator injects them; others are passed over."""
    if not carrier:
        return None
    named = {name.lower(): text for name, text in carrier.items()}
    parent, state = named.get("traceparent", ""), named.get("tracestate", "")
    return run_pb2.TraceContext(traceparent=parent, tracestate=state) if parent else None


def payload(value: object) -> Payload | None:
    """Bytes and text as they are, None as nothing, everything else as JSON.

    JSON takes what msgspec takes: dicts, lists, numbers, dataclasses, datetimes, UUIDs, enums; and
    models of pydantic.
    """
    if value is None:
        return None
    if isinstance(value, Payload):
        json_text = _json_text()
        if json_text.is_json(value.content_type) and (fault := json_text.fault(value.data)):
            raise ValueError(
                f"a payload of type {value.content_type} is not valid JSON ({fault}); mend it, "
                "or give it another content_type"
            )
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return Payload(data=bytes(value), content_type=BYTES)
    if isinstance(value, str):
        return Payload(data=value.encode(), content_type=TEXT)
    import msgspec  # It costs a tenth of this package's start.

    try:
        data = msgspec.json.encode(value, enc_hook=to_json)
    except (TypeError, msgspec.MsgspecError) as wrong:
        raise TypeError(f"a payload of {type(value).__name__} is no JSON: {wrong}") from wrong
    # JSON has no word for these, and msgspec writes null.
    if (
        b"null" in data
        and (odd := _not_finite(msgspec.to_builtins(value, enc_hook=to_json))) is not None
    ):
        raise ValueError(f"a payload holds {odd}, which JSON cannot say; write None, or a text")
    return Payload(data=data, content_type=JSON)


@cache
def _json_text() -> ModuleType:
    """Loaded when first used, since it loads msgspec."""
    from ...proto import json_text

    return json_text


def _not_finite(value: object) -> float | None:
    """The first number in it that is infinite or none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    inner: Iterable[object] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    return next((odd for one in inner if (odd := _not_finite(one)) is not None), None)


def texts(given: Iterable[str], what: str) -> list[str]:
    """A list of texts; one text would be taken for the list of its letters."""
    if isinstance(given, str):
        raise TypeError(f"{what} is {given!r}, a single text; write a list: [{given!r}]")
    found = list(given) if isinstance(given, Iterable) else [given]
    for one in found:
        if not isinstance(one, str):
            raise TypeError(f"{what} holds {one!r}; write a list of texts")
    return found


def words(given: Mapping[str, str], what: str) -> dict[str, str]:
    """Texts by texts, as labels are."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} is {given!r}; write a mapping: {{'team': 'mail'}}")
    for pair in given.items():
        if not all(isinstance(one, str) for one in pair):
            raise TypeError(f"{what} holds {pair[0]!r}: {pair[1]!r}; both must be texts")
    return dict(given)


def percent(share: float | None, what: str) -> int | None:
    """A share or factor in whole percent."""
    if share is None:
        return None
    if not isinstance(share, int | float) or not math.isfinite(share):
        raise TypeError(f"{what} is {share!r}; write a number, such as 1.5")
    return round(share * 100)


@overload
def value_of(held: Payload, kind: type[Kind]) -> Kind: ...
@overload
def value_of(held: Payload, kind: None = None) -> Any: ...  # noqa: ANN401
def value_of(held: Payload, kind: Any = None) -> Any:
    """What a payload holds: JSON decoded (as `kind`, if one is given), text, or bytes."""
    if held.hidden:
        raise Forbidden("it is there, but this access token may not see payloads; use one that may")
    media = held.content_type.partition(";")[0].strip().lower()
    if media == JSON or media.endswith("+json"):
        import msgspec

        wanted = Any if kind is None else kind
        return msgspec.json.decode(held.data, type=wanted, dec_hook=from_json)
    if media.startswith("text/"):
        return _checked(held.data.decode(), kind)
    return _checked(held.data or None, kind)


def _checked(value: object, kind: type | None) -> object:
    if kind is None:
        return value
    import msgspec

    return msgspec.convert(value, kind, strict=False)


def choice(enum: Any, prefix: str, word: str) -> Any:  # noqa: ANN401  # Any enum of the contracts.
    """The enum value that a word names: choice(Priority, "PRIORITY_", "high")."""
    values: Mapping[str, int] = dict(enum.items())
    number = values.get(prefix + word.upper()) if isinstance(word, str) else None
    if not number:
        known = ", ".join(repr(name.removeprefix(prefix).lower()) for name in list(values)[1:])
        raise ValueError(f"{word!r} is not known here; write one of {known}")
    return number
