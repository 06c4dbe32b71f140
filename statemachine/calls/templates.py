"""What is to be known of a template before a job is made of it, looked at once for many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...proto import secret_text
from ...proto.v1 import job_pb2
from ..core.instants import ms_or
from ..core.rejection import Fault
from ..model import policies, validate
from ..model.specs import BYTES_KEPT, KEPT, Template


@dataclass(frozen=True, slots=True)
class CheckedTemplate:
    """A template after it was looked at."""

    # What is wrong with it.
    faults: tuple[Fault, ...]
    has_upstream: bool
    # Those that its action names.
    secrets: tuple[str, ...]
    keep_ms: int
    # None: never.
    delete_after_ms: int | None
    # Where its policies go against each other, for people.
    at_odds: tuple[str, ...]


def check(template: Template) -> CheckedTemplate:
    return _kept(template) if len(template.data) <= BYTES_KEPT else _check(template)


def _check(template: Template) -> CheckedTemplate:
    spec = template.spec
    faults = tuple(validate.spec_faults(spec))
    delete_after = spec.HasField("delete_after")
    return CheckedTemplate(
        faults=faults,
        has_upstream=bool(spec.upstream.jobs),
        secrets=secret_text.names_in(spec.action),
        keep_ms=ms_or(spec, "keep_history", 0),
        delete_after_ms=ms_or(spec, "delete_after", 0) if delete_after else None,
        at_odds=() if faults else (*policies.at_odds(spec), *_misplaced(spec)),
    )


def _misplaced(spec: job_pb2.JobSpec) -> list[str]:
    """A word where a secret is named in a place that sends the text as it is."""
    place = secret_text.misplaced(spec.action)
    if not place:
        return []
    return [
        f"spec.action.{place} has 'secret://', which is sent as it is: a secret is put into values "
        "of headers, metadata and environment alone"
    ]


_kept = lru_cache(KEPT)(_check)
