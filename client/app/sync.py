"""Declaring the jobs of an app: what would change is shown first, and deleting is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ...proto.v1 import job_pb2
from ..sdk.errors import CallerError, NotFound
from .app import LABEL

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ..calls.blocking.client import Client
    from .app import App

Kind = Literal["create", "change", "keep", "delete", "refuse"]
Result = job_pb2.ImportResult
KINDS: dict[int, Kind] = {
    Result.VERDICT_CREATED: "create",
    Result.VERDICT_UPDATED: "change",
    Result.VERDICT_UNCHANGED: "keep",
}
MARKS: dict[Kind, str] = {"create": "+", "change": "~", "keep": "=", "delete": "-", "refuse": "!"}
UNSET = "(unset)"
VALUE_CHARS = 120
TIMES = {"google.protobuf.Duration", "google.protobuf.Timestamp"}


@dataclass(frozen=True)
class JobChange:
    """What becomes of a job."""

    job: str
    kind: Kind
    # What differs, by its path: as it is, and as it is to be.
    fields: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    # What may not mean what it seems to; of a refusal, why.
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"{MARKS[self.kind]} {self.job}"
        for path, (old, new) in self.fields.items():
            yield f"    {path}: {old} -> {new}"
        for note in self.notes:
            yield f"    {note}"


@dataclass(frozen=True)
class Changes:
    """What `sync` found, and whether it was carried out."""

    jobs: tuple[JobChange, ...]
    done: bool = False
    # Jobs that are to go and were left, as nobody has agreed.
    left: tuple[str, ...] = ()

    def of(self, kind: Kind) -> list[JobChange]:
        return [one for one in self.jobs if one.kind == kind]

    @property
    def none(self) -> bool:
        """The cluster has the jobs as the app declares them."""
        return all(one.kind == "keep" for one in self.jobs)

    def __str__(self) -> str:
        lines = [line for one in self.jobs if one.kind != "keep" for line in one.lines()]
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """One line: how many of each."""
        words: dict[Kind, str] = {
            "create": "to create", "change": "to change", "delete": "to delete",
            "refuse": "refused", "keep": "as declared",
        }  # fmt: skip
        counts = [(len(self.of(kind)), word) for kind, word in words.items()]
        said = ", ".join(f"{count} {word}" for count, word in counts if count)
        return f"Jobs: {said or 'none'}."


class SyncRefused(CallerError):
    """The cluster does not take some of the jobs, so nothing was changed."""

    def __init__(self, changes: Changes) -> None:
        refused = changes.of("refuse")
        why = "; ".join(f"{one.job}: {' '.join(one.notes)}" for one in refused)
        super().__init__(f"nothing was changed, since the cluster does not take {why}")
        self.changes = changes


def sync(app: App, *, yes: bool, dry_run: bool, say: Callable[[str], object]) -> Changes:
    """See App.sync."""
    client = app.connections.blocking()
    wanted = app.jobs_declared()
    found = (*_declared(app, client, wanted), *_gone(app, client, wanted))
    changes = Changes(found)
    say(str(changes))
    if changes.of("refuse"):
        raise SyncRefused(changes)
    if dry_run or changes.none:
        return changes
    gone = [one.job for one in changes.of("delete")]
    agreed = not gone or yes or _asked(gone, say)
    touched = {one.job for one in [*changes.of("create"), *changes.of("change")]}
    results = client.jobs.import_([job for job in wanted if job.name in touched], replace=True)
    late = [
        JobChange(one.job, "refuse", notes=(one.message,))
        for one in results if one.verdict == Result.VERDICT_REFUSED
    ]  # fmt: skip
    if late:
        # Somebody came in between.
        raise SyncRefused(Changes(tuple(late)))
    for name in gone if agreed else ():
        _delete(client, name)
    return Changes(found, done=True, left=() if agreed else tuple(gone))


def _declared(app: App, client: Client, wanted: list[job_pb2.Job]) -> Iterator[JobChange]:
    results = client.jobs.import_(wanted, replace=True, validate_only=True)
    for job, result in zip(wanted, results, strict=True):
        if result.verdict == Result.VERDICT_REFUSED:
            yield JobChange(job.name, "refuse", notes=(result.message,))
            continue
        kind = KINDS[result.verdict]
        if kind != "change":
            yield JobChange(job.name, kind, notes=tuple(result.warnings))
            continue
        present = client.jobs.get(job.name)
        owner = present.spec.labels.get(LABEL, "")
        if owner and owner != app.name:
            why = (
                f"it belongs to the app {owner!r}; give the task another name, or the app another "
                "namespace"
            )
            yield JobChange(job.name, "refuse", notes=(why,))
            continue
        yield JobChange(job.name, kind, differences(present, job), tuple(result.warnings))


def _gone(app: App, client: Client, wanted: list[job_pb2.Job]) -> Iterator[JobChange]:
    """What the app of this name has declared before, and declares no longer."""
    if not app.name:
        return
    names = {job.name for job in wanted}
    for job in client.jobs.list(f"labels.{LABEL}={app.name}"):
        if job.name not in names:
            yield JobChange(job.name, "delete")


def _delete(client: Client, name: str) -> None:
    try:
        client.jobs.delete(name)
    except NotFound as missing:
        # It is gone, which was to be done.
        if missing.reason != "JOB_NOT_FOUND":
            raise


def _asked(gone: list[str], say: Callable[[str], object]) -> bool:
    jobs = "1 job" if len(gone) == 1 else f"{len(gone)} jobs"
    if not sys.stdin.isatty():
        say(f"{jobs} not deleted, as nobody is there to be asked: run it with yes=True, or --yes")
        return False
    return input(f"Delete {jobs} with their history ({', '.join(gone)})? [y/N] ").lower() == "y"


def differences(present: job_pb2.Job, wanted: job_pb2.Job) -> dict[str, tuple[str, str]]:
    """What differs between two jobs, by its path."""
    before, after = dict(_flat(present.spec)), dict(_flat(wanted.spec))
    return {
        path: (before.get(path, UNSET), after.get(path, UNSET))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    }


def _flat(message: Message, path: str = "") -> Iterator[tuple[str, str]]:
    """Each value that is set, by its path."""
    for descriptor, value in message.ListFields():
        name, inner = f"{path}{descriptor.name}", descriptor.message_type
        if inner is not None and inner.GetOptions().map_entry:
            yield from ((f"{name}.{key}", _text(value[key])) for key in sorted(value))
        elif descriptor.is_repeated:
            yield name, ", ".join(_one(descriptor, one) for one in value)
        elif inner is None or inner.full_name in TIMES:
            yield name, _one(descriptor, value)
        else:
            yield from _flat(value, f"{name}.")


def _one(descriptor: Any, value: Any) -> str:  # noqa: ANN401  # A value of any field.
    if descriptor.enum_type is not None:
        return str(descriptor.enum_type.values_by_number[value].name)
    if descriptor.message_type is None:
        return _text(value)
    if descriptor.message_type.full_name in TIMES:
        return str(value.ToJsonString())
    return " ".join(f"{path} {text}" for path, text in _flat(value))


def _text(value: object) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"
