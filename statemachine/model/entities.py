"""A job and a run, as rules hand them to each other.

A view hands one out by its number and keeps it, with the keys under which it stands, so that
whoever needs a job need not look for its parts. What is read of one is `state`, `definition` or
`record`. To change it a rule takes it from the view (`change_state`, `change_definition`,
`change_run`), and what was taken is written when the decision is sealed: there is nothing to put
afterwards, and nothing to forget. The record of a run that ends is taken by `end_run` and written
when the run moves to the history; nobody changes it behind that. `tests/statemachine/driver.py`
compares what was read only with what is stored, after each decision.
"""

from __future__ import annotations

import msgspec

from . import keys
from .record import JobRecord, RunRecord, StateRecord


class Job(msgspec.Struct, eq=False, gc=False):
    """A job: its definition, and where it stands."""

    jid: int
    definition: JobRecord
    state: StateRecord
    # The key of its state, and the number of its namespace.
    key: bytes
    namespace: int


class Run(msgspec.Struct, eq=False, gc=False):
    """A run of a job, which is under way, comes or has ended."""

    job: Job
    jid: int
    occurrence: int
    record: RunRecord
    # Where it stands as long as it is under way.
    key: bytes


def job_with(jid: int, definition: JobRecord, state: StateRecord) -> Job:
    return Job(jid, definition, state, keys.state(jid), jid >> keys.SERIAL_BITS)


def run_with(job: Job, occurrence: int, record: RunRecord) -> Run:
    return Run(job, job.jid, occurrence, record, keys.run(job.jid, occurrence))
