"""`raftsched audit`: every scheduled time of a job has exactly one outcome, and the one that it
should have; or it says which not, and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble
from ..names import JOB
from ..options import command
from ..render.clean import echo
from ..render.progress import bar
from ..session import Invocation
from ..times import PastInstant, now_ms, timestamp

if TYPE_CHECKING:
    from ..messages import job_pb2
    from ..render.formats import Cell, ValueFormats

# The cluster compares so many scheduled times at once; longer ranges are halved.
HALVINGS_MAX = 24
SHOWN_MAX = 20
TOGETHER = 100  # Jobs that are audited in one call: as many as the contract has.
# What keeps one job from being audited keeps all others as well.
ALL_JOBS = (Exit.UNREACHABLE, Exit.FORBIDDEN, Exit.OUTCOME_UNKNOWN, Exit.INTERRUPTED)


@command(
    None, "audit",
    "raftsched audit report --since 24h",
    "raftsched audit --all",
    "raftsched audit report --ledger -o jsonl",
    reads=True, lists=True,
)  # fmt: skip
@click.argument("name", type=JOB, default="", metavar="[JOB]")
@click.option(
    "--since",
    "--from",
    "first",
    type=PastInstant(),
    metavar="TIME",
    help="It looks from this time on; 24h is a day ago.  [the oldest that is kept]",
)
@click.option(
    "--until",
    "--to",
    "end",
    type=PastInstant(),
    metavar="TIME",
    help="It looks up to this time, not included.  [now]",
)
@click.option("--all", "every", is_flag=True, help="All jobs of the namespace are audited.")
@click.option("--ledger", is_flag=True, help="The ledger itself is printed, newest first.")
def audit(
    session: Invocation, name: str, first: int | None, end: int | None, every: bool, ledger: bool
) -> None:
    """Compute the scheduled times of a job anew, and what each should have become, and compare that
    with the firing ledger; and look for a run of each trigger, backfill and requeued dead letter.

    Ends with 0 when all is as it should be, with 1 when something is wrong, and with 8 when nothing
    is wrong but what is kept does not prove all of it. With --all a job that cannot be audited is
    named, and the others are audited all the same; on a terminal sound ones are only counted, but
    for -o wide.
    """
    if bool(name) == every:
        raise click.UsageError("Name a job, or say --all.")
    if ledger:
        show_ledger(session, name, first, end)
    elif every:
        audit_all(session, first, end)
    else:
        answer = audited(session, name, first, end)
        show(session, name, answer)
        if not answer.sound:
            raise unsound(name) if is_wrong(answer) else unproved(name, answer)


def is_wrong(answer: job_pb2.AuditJobResponse) -> bool:
    return bool(answer.wrong or answer.missing or answer.unexpected)


def unsound(name: str) -> Trouble:
    return Trouble(
        f"the ledger of job {name} is not sound", "see above what is wrong",
        f"raftsched audit {name} --ledger, and report it: this must not happen", Exit.FAILED,
    )  # fmt: skip


def unproved(name: str, answer: job_pb2.AuditJobResponse | None = None) -> Trouble:
    then = f"raftsched audit {name}"
    ends = [
        max(one.scheduled_time.ToMilliseconds(), one.last_scheduled_time.ToMilliseconds())
        for one in (answer.findings if answer is not None else ())
    ]
    if ends:
        then += f" --from {timestamp(max(ends) + 1).ToJsonString()}"
    return Trouble(
        f"nothing is wrong with job {name}, but not all of it can be proved",
        "see above what cannot be judged, and why" if answer else "the audit of it alone says why",
        then, Exit.UNPROVED,
    )  # fmt: skip


def audited(
    session: Invocation, name: str, first: int | None, end: int | None, halvings: int = 0
) -> job_pb2.AuditJobResponse:
    """One audit; a range with too many scheduled times is audited in halves."""
    from ...sdk.errors import InvalidArgument
    from ..refused import refusals

    request = m.job_pb2.AuditJobRequest(
        namespace=session.namespace, job=name,
        from_time=timestamp(first) if first is not None else None,
        to_time=timestamp(end) if end is not None else None,
    )  # fmt: skip
    with refusals(session, f"audit job {name}"):
        try:
            answer = session.client.call(request, timeout=session.timeout_s, stale=session.stale)
        except InvalidArgument as wrong:
            if wrong.reason != "LIMIT_EXCEEDED" or halvings >= HALVINGS_MAX:
                raise
        else:
            assert isinstance(answer, m.job_pb2.AuditJobResponse)
            return answer
    first, end = beginning(session, name) if first is None else first, end or now_ms()
    middle = (first + end) // 2
    older = audited(session, name, first, middle, halvings + 1)
    newer = audited(session, name, middle, end, halvings + 1)
    return joined(older, newer)


def beginning(session: Invocation, name: str) -> int:
    request = m.job_pb2.GetJobRequest(namespace=session.namespace, job=name)
    job = session.read(request, m.job_pb2.Job, f"audit job {name}")
    return job.create_time.ToMilliseconds()


def joined(
    older: job_pb2.AuditJobResponse, newer: job_pb2.AuditJobResponse
) -> job_pb2.AuditJobResponse:
    counts = {one.outcome: one.count for one in older.outcomes}
    for one in newer.outcomes:
        counts[one.outcome] = counts.get(one.outcome, 0) + one.count
    return m.job_pb2.AuditJobResponse(
        sound=older.sound and newer.sound,
        expected=older.expected + newer.expected,
        recorded=older.recorded + newer.recorded,
        outcomes=[
            m.job_pb2.OutcomeCount(outcome=outcome, count=count)
            for outcome, count in sorted(counts.items())
        ],
        missing=[*older.missing, *newer.missing][:1000],
        unexpected=[*older.unexpected, *newer.unexpected][:1000],
        comparable_since=newer.comparable_since,
        findings=[*older.findings, *newer.findings][:1000],
        wrong=older.wrong + newer.wrong,
        unjudged=older.unjudged + newer.unjudged,
        requested=older.requested + newer.requested,
        requested_ended=older.requested_ended + newer.requested_ended,
        requested_under_way=older.requested_under_way + newer.requested_under_way,
        waiting=[*older.waiting, *newer.waiting][:1000],
        waiting_times=older.waiting_times + newer.waiting_times,
    )


def show(session: Invocation, name: str, answer: job_pb2.AuditJobResponse) -> None:
    if not session.out.is_table:
        session.out.one(answer)
        return
    formats = session.out.formats
    verdict, colour = "sound", "green"
    if not answer.sound:
        verdict, colour = ("NOT SOUND", "red") if is_wrong(answer) else ("NOT PROVED", "yellow")
    session.out.paint(
        f"Job {name}: {verdict}, {answer.recorded} of {answer.expected} scheduled times have an"
        " outcome.",
        colour, err=not session.out.for_person,
    )  # fmt: skip
    if answer.requested:
        counts = f"{answer.requested_ended} with an outcome, {answer.requested_under_way} under way"
        session.say(f"{answer.requested} triggered or backfilled: {counts}.")
    if answer.waiting_times:
        session.say(f"{answer.waiting_times} wait for their outcome:")
    for waits in answer.waiting[:SHOWN_MAX]:
        session.say(f"  {waiting(waits, formats)}")
    if answer.HasField("comparable_since"):
        session.say(f"Compared since {formats.time(answer.comparable_since)}.")
    if answer.outcomes:
        session.out.items(answer.outcomes, answer)
    for title, times in (
        ("without an outcome", [formats.time(one) for one in answer.missing]),
        (
            "that no schedule explains",
            [formats.time(one.scheduled_time) for one in answer.unexpected],
        ),
    ):
        if times:
            more = f" and {len(times) - SHOWN_MAX} others" if len(times) > SHOWN_MAX else ""
            echo(f"{len(times)} {title}: {', '.join(times[:SHOWN_MAX])}{more}", err=True)
    for finding in answer.findings[:SHOWN_MAX]:
        echo(sentence(finding, formats), err=True)
    if len(answer.findings) > SHOWN_MAX:
        echo(f"and {len(answer.findings) - SHOWN_MAX} others; -o json shows them", err=True)


def waiting(waits: job_pb2.AuditWaiting, formats: ValueFormats) -> str:
    """What waits, since when and for what."""
    when = formats.time(waits.scheduled_time)
    if waits.HasField("last_scheduled_time"):
        when += f" to {formats.time(waits.last_scheduled_time)} ({waits.count})"
    since = f", since {formats.time(waits.since_time)}" if waits.HasField("since_time") else ""
    return f"{when}{since}: waits for {waits.awaits}"


def sentence(finding: job_pb2.AuditFinding, formats: ValueFormats) -> str:
    """What is wrong with a scheduled time, or why it cannot be judged."""
    from ..render.formats import enum_word

    when = formats.time(finding.scheduled_time)
    if finding.HasField("last_scheduled_time"):
        when += f" to {formats.time(finding.last_scheduled_time)} ({finding.count})"
    stands = enum_word(finding, "outcome") or "nothing"
    if finding.verdict == m.job_pb2.AuditFinding.VERDICT_UNJUDGED:
        return f"{when}: {stands}, cannot be judged: {finding.reason}"
    should = enum_word(finding, "should")
    wanted = f", should be {should}" if should and should != stands else ", is wrong"
    return f"{when}: {stands}{wanted}: {finding.reason}"


def audit_all(session: Invocation, first: int | None, end: int | None) -> None:
    """One line for each job of the namespace; to a person, for each that is not sound."""
    wrong: list[str] = []
    doubtful: list[str] = []
    refused: list[Trouble] = []
    judged = sound = expected = recorded = 0
    only_others = session.out.for_person and session.out.format != "wide"

    def answers() -> Iterator[tuple[str, job_pb2.AuditJobResponse]]:
        nonlocal judged, sound, expected, recorded
        for job, answer in audited_jobs(session, first, end):
            if isinstance(answer, Trouble):
                echo(f"{answer.message}: {'; '.join(answer.why)}", err=True)
                refused.append(answer)
                continue
            if not answer.sound:
                (wrong if is_wrong(answer) else doubtful).append(job)
            judged += 1
            sound += answer.sound
            expected += answer.expected
            recorded += answer.recorded
            yield job, answer

    if session.out.is_table:
        titles = ["JOB", "SOUND", "EXPECTED", "RECORDED", "WRONG", "UNJUDGED", "REQUESTED", "ENDED"]
        rows = (row(job, one) for job, one in answers() if not (only_others and one.sound))
        some = list(islice(rows, 1)) if only_others else []
        if some or not only_others:
            session.out.table(titles, chain(some, rows))
        session.say(
            f"{sound} of {judged} jobs sound, {recorded} of {expected} scheduled times have an"
            " outcome."
        )
    else:
        from ..render.output import plain

        session.out.records([{"job": job, **plain(answer)} for job, answer in answers()])
    if wrong:
        raise unsound(wrong[0])
    if refused:
        few = "1 job was" if len(refused) == 1 else f"{len(refused)} jobs were"
        then = "raftsched audit JOB --from INSTANT"
        raise Trouble(f"{few} not audited", "see the reasons above", then, refused[0].code)
    if doubtful:
        raise unproved(doubtful[0])


def row(job: str, answer: job_pb2.AuditJobResponse) -> list[Cell | str]:
    from ..render.formats import Cell

    counts = (
        answer.expected, answer.recorded, answer.wrong, answer.unjudged, answer.requested,
        answer.requested_ended,
    )  # fmt: skip
    sound = Cell("yes", "green")
    if not answer.sound:
        sound = Cell("NO", "red") if is_wrong(answer) else Cell("not proved", "yellow")
    return [job, sound, *(str(count) for count in counts)]


def audited_jobs(
    session: Invocation, first: int | None, end: int | None
) -> Iterator[tuple[str, job_pb2.AuditJobResponse | Trouble]]:
    """The audit of each job of the namespace, or why there is none."""
    request = m.namespace_pb2.GetNamespaceRequest(namespace=session.namespace)
    total = session.read(request, m.namespace_pb2.Namespace, "audit jobs").usage.jobs
    names = jobs(session)
    with bar("Auditing", total) as step:
        while some := list(islice(names, TOGETHER)):
            found = audited_together(session, some, first, end)
            for job in some:
                step(1)
                try:
                    yield job, found[job] if job in found else audited(session, job, first, end)
                except Trouble as trouble:
                    if trouble.code in ALL_JOBS:
                        raise
                    yield job, trouble


def audited_together(
    session: Invocation, names: list[str], first: int | None, end: int | None
) -> dict[str, job_pb2.AuditJobResponse]:
    """The audits of some jobs, by their names. Those that are missing were refused, or the node is
    of a version that audits jobs one by one: who asks for one alone hears why."""
    from ..refused import refusals

    found: dict[str, job_pb2.AuditJobResponse] = {}
    left = names
    while left:
        request = m.job_pb2.AuditJobsRequest(
            namespace=session.namespace, jobs=left,
            from_time=timestamp(first) if first is not None else None,
            to_time=timestamp(end) if end is not None else None,
        )  # fmt: skip
        try:
            with refusals(session, "audit jobs"):
                answer = session.client.call(
                    request, timeout=session.timeout_s, stale=session.stale
                )
        except Trouble as trouble:
            if trouble.code in ALL_JOBS:
                raise
            return found
        assert isinstance(answer, m.job_pb2.AuditJobsResponse)
        if not answer.audits:
            return found
        found |= {one.job: one.audit for one in answer.audits if one.HasField("audit")}
        seen = {one.job for one in answer.audits}
        left = [name for name in left if name not in seen]
    return found


def jobs(session: Invocation) -> Iterator[str]:
    """Those that can be audited."""
    pages = session.pages(
        m.job_pb2.ListJobsRequest(namespace=session.namespace), m.job_pb2.ListJobsResponse,
        "audit jobs", limit=0,
    )  # fmt: skip
    deleting = m.job_pb2.JobStatus.STATE_DELETING
    for page in pages:
        yield from (job.name for job in page.jobs if job.status.state != deleting)


def show_ledger(session: Invocation, name: str, first: int | None, end: int | None) -> None:
    if not name:
        raise click.UsageError("--ledger needs the name of a job.")
    request = m.job_pb2.ListJobLedgerRequest(
        namespace=session.namespace, job=name,
        from_time=timestamp(first) if first is not None else None,
        to_time=timestamp(end) if end is not None else None,
    )  # fmt: skip
    kind = m.job_pb2.ListJobLedgerResponse
    session.show_list(request, kind, "entries", f"list the ledger of job {name}")
