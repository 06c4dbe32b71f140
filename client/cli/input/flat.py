"""A job in the words of the options of `job create`: how people write one in a file.

    name: report
    cron: "0 9 * * mon-fri"
    zone: Europe/Berlin
    handler: build-report
    payload: {day: monday}

Each word is the option of that name, with `_` for `-`, and is read by the same code; what can be
repeated may be a list, and KEY=VALUE a table. Instants without a zone are in UTC here, since a file
means the same on every machine. What no option can write has the form of the API: see specfile.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from difflib import get_close_matches
from functools import cache
from typing import Any

import click

from .. import payloads
from ..exits import Trouble
from ..messages import common_pb2, job_pb2, json_format
from ..render import formats as formats
from ..times import Instant, instant_text, length_text, utc_instant
from .documents import quoted
from .job_options import FIELDS, SpecOption, spec_options
from .spec import build
from .spec import payload as payload_of

# Words for people who write several values under one name; the table of the others.
PLURALS = {"labels": "label", "headers": "header", "worker_labels": "worker_label"}
SINGULARS = {word: plural for plural, word in PLURALS.items()}
BESIDE_SPEC = ("name", "namespace")
# A message that the form of the API writes as the value of its only important field, too.
SHORT = {
    "Cron": "expression", "Interval": "every", "AfterEnd": "delay", "Once": "time",
    "Dependency": "job",
}  # fmt: skip
# What is made of a table of texts, by what the option shows of its value.
MARKS = {"KEY=VALUE": "=", "'NAME: VALUE'": ": "}
SCHEDULES = ("cron", "every", "at", "after_end")
Note = Callable[[str, str], None]  # Where it stands, and what is wrong with it.


@cache
def options() -> Mapping[str, click.Option]:
    """By word, the options that make up a spec."""

    def body() -> None: ...

    made = reversed(getattr(spec_options(body), "__click_params__", []))
    return {str(option.name): option for option in made}


def words() -> tuple[str, ...]:
    """What may stand in a file, as it is written there."""
    return (*BESIDE_SPEC, *(SINGULARS.get(word, word) for word in options()), "schedules")


@cache
def places() -> tuple[str, ...]:
    """The path of each field that a job may have in the form of the API."""
    return tuple(_below(job_pb2.JobSpec.DESCRIPTOR, "spec"))


def _below(kind: Any, path: str) -> Iterator[str]:  # A Descriptor.
    for field in kind.fields:
        yield f"{path}.{field.name}"
        below = field.message_type
        if below is not None and below.file.package == kind.file.package:
            yield from _below(below, f"{path}.{field.name}")


def is_meant(document: Any) -> bool:
    """Whether a table is a job in these words: none has a `spec`, and the API's form always."""
    return isinstance(document, Mapping) and "spec" not in document


def read(
    job: job_pb2.Job, document: Mapping[str, Any], note: Note, wire: Callable[..., None]
) -> None:
    """Fill a job. `wire` reads what has the form of the API, as (message, value, path)."""
    given: dict[str, Any] = {
        name: () if option.multiple else False if option.is_flag else None
        for name, option in options().items()
    }
    schedules = None
    for key, value in document.items():
        word = PLURALS.get(key := str(key).replace("-", "_"), key)
        if value is None:
            continue
        if word in BESIDE_SPEC:
            setattr(job, word, _plain(value))
        elif word == "payload":
            given[word] = value
        elif word == "schedules":
            schedules = value
        elif word not in options():
            note(key, _unknown(key))
        else:
            try:
                given[word] = _value(options()[word], word, value)
            except (ValueError, click.BadParameter) as wrong:
                note(key, getattr(wrong, "message", str(wrong)))
    _fill(job.spec, given, note)
    if schedules:
        if job.spec.schedules:
            note("schedules", f"it stands beside {' or '.join(SCHEDULES)}; keep one of the two")
        wire(job, {"spec": {"schedules": schedules}}, "")


def _fill(spec: job_pb2.JobSpec, given: dict[str, Any], note: Note) -> None:
    whole = given["payload"]
    try:
        given["payload"], kind = _payload(whole, given["content_type"])
        if given["payload"] is None and kind is not None:
            raise ValueError("content_type without payload; write both, or neither")
        given["content_type"] = kind
    except ValueError as wrong:
        note("payload", str(wrong))
        given["payload"] = given["content_type"] = None
    try:
        made, _ = build(given)
    except Trouble as wrong:
        # As the command line refuses it, in the words of a file.
        why = [wrong.message, *wrong.why, wrong.then]
        note("", in_words("; ".join(one for one in why if one)))
    else:
        spec.MergeFrom(made)


def in_words(text: str) -> str:
    """What is written of options, with the words that stand in a file."""

    def word(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        return SINGULARS.get(name, name)

    return re.sub(r"--([a-z][a-z-]*)", word, text)


def _payload(given: Any, kind: str | None) -> tuple[str | None, str | None]:
    """A text as the option takes it; what is a table, a list or a number is JSON."""
    if given is None:
        return None, kind
    if not isinstance(given, str):
        return payloads.json_of(given), kind or payloads.JSON
    if given.startswith("@"):
        raise ValueError(
            "no file is read from here: write what is in it, or use the form with spec: "
            "{payload: {text: '@…'}}"
        )
    return given, kind


def _value(option: click.Option, word: str, given: Any) -> Any:
    """What click would make of it."""
    if option.is_flag:
        if isinstance(given, bool):
            return given
        if given not in ("true", "false"):
            raise ValueError(f"{quoted(given)} is not true or false")
        return given == "true"
    if isinstance(given, list) and word == "shell":
        return shlex.join(_plain(one) for one in given)
    if isinstance(given, Mapping):
        mark = MARKS.get(option.metavar or "")
        if mark is None:
            raise ValueError(f"{quoted(given)} is a table, and this is none")
        given = [f"{key}{mark}{_plain(value)}" for key, value in given.items()]
    if isinstance(given, list):
        if not option.multiple:
            raise ValueError(f"{quoted(given)} is a list, and it has one value")
        return tuple(_one(option, one) for one in given)
    return (_one(option, given),) if option.multiple else _one(option, given)


def _one(option: click.Option, given: Any) -> Any:
    if isinstance(given, Mapping | list):
        raise ValueError(f"{quoted(given)} is not one value")
    if isinstance(option.type, Instant):
        return utc_instant(given)
    return option.type.convert(_plain(given), option, None)


def _plain(given: Any) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    return given.isoformat() if isinstance(given, date | datetime) else str(given)


def _unknown(word: str) -> str:
    known = words()
    near = get_close_matches(word, known, n=1) or get_close_matches(word, options(), n=1)
    there = [place for place in places() if place.rsplit(".", 1)[-1] == word]
    if there and not near:
        return f"there is no such word; did you mean {there[0]}, in the form with spec?"
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return f"there is no such word; {hint}"


# Writing.


def written(job: job_pb2.Job) -> dict[str, Any] | None:
    """The job in these words; None where they cannot hold all of it."""
    words = {word: getattr(job, word) for word in BESIDE_SPEC if getattr(job, word)}
    words |= _texts(job.spec, ("description", "owner", "labels"))
    words |= _action(job.spec.action) | _schedules(job.spec)
    if job.spec.HasField("payload"):
        words |= _written_payload(job.spec.payload)
    words |= _texts(job.spec, None, but=words)
    again, faults = job_pb2.Job(), list[str]()
    read(again, words, lambda _, why: faults.append(why), _refuse)
    same = not faults and again == job_pb2.Job(
        namespace=job.namespace, name=job.name, spec=job.spec
    )
    return words if same else None


def _refuse(*_: object) -> None:
    raise AssertionError("what is written here has no part in the form of the API")


def _texts(
    spec: job_pb2.JobSpec, wanted: Iterable[str] | None, but: Iterable[str] = ()
) -> dict[str, Any]:
    """The plain fields that are set: the wanted ones, or all but some."""
    found: dict[str, Any] = {}
    for field in FIELDS:
        word = SINGULARS.get(field.variable, field.variable)
        if (wanted is None or word in wanted) and word not in but:
            value = _of_field(spec, field)
            if value not in (None, "", [], {}):
                found[word] = value
    return found


def _of_field(spec: job_pb2.JobSpec, field: SpecOption) -> Any:
    *parents, last = field.path.split(".")
    owner: Any = spec
    for name in parents:
        owner = getattr(owner, name)
    kind, value = owner.DESCRIPTOR.fields_by_name[last], getattr(owner, last)
    if field.metavar == "KEY=VALUE":
        return dict(sorted(value.items()))
    if field.many:
        return _one_or_all(list(value))
    if kind.enum_type is not None:
        return formats.word(kind.enum_type, value).replace(" ", "-")
    if kind.message_type is not None:
        if not owner.HasField(last):
            return None
        is_length = kind.message_type.name == "Duration"
        return formats.length(value) if is_length else _instant(value.ToMilliseconds())
    return value if value or (kind.has_presence and owner.HasField(last)) else None


def _instant(ms: int) -> str:
    return instant_text(ms, "utc", exact=True)


def _one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _action(action: job_pb2.Action) -> dict[str, Any]:
    match action.WhichOneof("kind"):
        case "handler":
            return {"handler": action.handler}
        case "http":
            http = action.http
            text = f"{http.method} {http.url}".strip()
            statuses = _one_or_all(list(http.expected_statuses))
            words = {"http": text, "headers": _sorted(http.headers), "expect_status": statuses}
        case "grpc":
            text = f"{action.grpc.target}/{action.grpc.method}"
            headers = _sorted(action.grpc.metadata)
            words = {"grpc": text, "headers": headers, "tls": action.grpc.tls}
        case "shell":
            shell = action.shell
            text = shell.argv[0] if shell.use_shell and shell.argv else shlex.join(shell.argv)
            words = {
                "shell": text, "use_shell": shell.use_shell, "env": _sorted(shell.environment),
                "warn_on_exit": _one_or_all(list(shell.warning_exit_codes)),
            }  # fmt: skip
        case _:
            return {}
    return {word: value for word, value in words.items() if value}


def _sorted(values: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(values.items()))


def _schedules(spec: job_pb2.JobSpec) -> dict[str, Any]:
    found: dict[str, list[Any]] = {word: [] for word in SCHEDULES}
    for one in spec.schedules:
        match one.WhichOneof("kind"):
            case "cron":
                found["cron"].append(one.cron.expression)
            case "interval":
                found["every"].append(length_text(one.interval.every.ToMilliseconds()))
            case "once":
                found["at"].append(_instant(one.once.time.ToMilliseconds()))
            case "after_end":
                found["after_end"].append(length_text(one.after_end.delay.ToMilliseconds()))
    found["after"] = [_after(one) for one in spec.upstream.jobs]
    return {word: _one_or_all(values) for word, values in found.items() if values}


def _after(one: job_pb2.Dependency) -> str:
    condition = formats.enum_word(one, "condition").replace(" ", "-")
    return f"{one.job}:{condition}" if condition else one.job


def _written_payload(payload: common_pb2.Payload) -> dict[str, Any]:
    """As JSON or as text; nothing where it is neither, which the comparison finds."""
    written = payloads.readable({"payload": json_format.MessageToDict(payload)})["payload"]
    if "json" in written and not isinstance(written["json"], str):
        return {"payload": written["json"]}
    text = formats.readable(payload.data)
    if text is None:
        return {}
    try:
        as_option = payload_of(text)
    except Trouble:
        as_option = None
    kind = {} if as_option == payload else {"content_type": payload.content_type}
    return {"payload": text} | kind
