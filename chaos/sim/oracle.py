"""What the scheduler promises, checked from the log alone and from what went to the outside.

S1 what was acknowledged is there; S2 each scheduled time has one outcome, and one run at most; S3
no run before its time; S4 one live lease a run, later leases have higher tokens; S6 a completion
counts only under the token of the present lease; S7 attempts follow each other; S9 time does not
run backwards, and nobody lapses who was heard; S11 what is COALESCED has another time that stands
for it; S12 under SKIP no run of a schedule begins beside another; S13 when the last run under way
of a job ends one that is held goes; A1, A2, A3 and A5 no decision goes on when its time is used up;
A4 nor does it walk over the ledger.

The oracle reads each change as it becomes part of the state, with a reading of its own: it asks no
rule what the rules wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...proto.v1 import job_pb2, run_pb2, worker_pb2
from ...statemachine.core.store import Reading
from ...statemachine.model import keys
from ...statemachine.model.phases import HELD, WAITING
from ...statemachine.model.record import (
    BrokenRecord,
    Change,
    JobRecord,
    LedgerRecord,
    RunRecord,
    StateRecord,
    parse,
    parse_change,
)
from .options import BACKFILL_TIMES
from .world import SimViolation

if TYPE_CHECKING:
    from .scheduler import SchedulerNode

HEARTBEAT_MS = 200  # Of a worker; after three without a word its session lapses.
LAPSE_MS = 3 * HEARTBEAT_MS
EARLY_MS = 1_500  # What clocks may differ by before a leader stops firing, and a look at them.
LATE_MS = 2_000
RUNNING = run_pb2.RUN_STATE_RUNNING
SUCCEEDED = run_pb2.RUN_STATE_SUCCEEDED
GAVE_WAY = (run_pb2.RUN_STATE_SKIPPED, run_pb2.RUN_STATE_CANCELLED)
SCANNED_EACH = 10  # Entries of the ledger that a piece of work may look at.
SCHEDULED = run_pb2.CAUSE_SCHEDULE
# What becomes of a time that was chosen to run.
DECIDED = frozenset(
    {
        run_pb2.OUTCOME_RAN,
        run_pb2.OUTCOME_LATE,
        run_pb2.OUTCOME_SKIPPED_OVERLAP,
        run_pb2.OUTCOME_SKIPPED_QUOTA,
        run_pb2.OUTCOME_SKIPPED_DEADLINE,
    }
)
COALESCED = run_pb2.OUTCOME_COALESCED
PLANTED = "planted"  # In the words of a failure that a history has on purpose.
GOES_ON = (job_pb2.JobStatus.STATE_ACTIVE, job_pb2.JobStatus.STATE_FINISHED)
ALONE = (job_pb2.OverlapPolicy.RULE_UNSPECIFIED, job_pb2.OverlapPolicy.RULE_SKIP)
RunKey = tuple[int, int]  # The jid and the occurrence of a run.


@dataclass
class JobLedger:
    """What became of a job's scheduled times."""

    alone: set[int] = field(default_factory=set)
    stretches: dict[int, int] = field(default_factory=dict)

    def knows(self, at_ms: int) -> bool:
        inside = any(first <= at_ms <= last for first, last in self.stretches.items())
        return at_ms in self.alone or inside


class Oracle:
    """See the head of this file."""

    def __init__(self, true_ms: Callable[[], int], steps: int = 1_000_000) -> None:
        # A piece of work fires one time of a schedule and one of a backlog, and the first piece is
        # free.
        self.most_pieces = 2 * (steps + 1)
        self.pieces: Counter[str] = Counter()  # Of work, in the change that is read.
        # A backfill reads the ledger once; what fires a time of it finds what it needs.
        self.most_scanned = BACKFILL_TIMES + SCANNED_EACH * (steps + 1)
        self.true_ms = true_ms  # What a clock that is right would say.
        self.index = 0
        self.now_ms = 0
        self.token = 0
        self.names: dict[int, str] = {}
        self.alone: set[int] = set()  # Jobs whose schedules begin one run at a time.
        self.rooms: set[bytes] = set()  # Where others still give way to a run.
        self.runs: dict[RunKey, RunRecord] = {}
        self.fired: set[RunKey] = set()
        self.ended: dict[RunKey, RunRecord] = {}
        self.fates: dict[int, str] = {}  # Token -> how its lease ended.
        self.books: dict[int, JobLedger] = {}
        self.triggered: Counter[int] = Counter()
        self.heard: dict[tuple[str, int, str], int] = {}
        self.terms: dict[tuple[str, int], int] = {}
        self.counts: Counter[str] = Counter()
        self.slip = ""  # The first mistake in the code of a rule.

    # The log.

    def changed(self, index: int, data: bytes, revision: int) -> None:
        """A change became part of the state; every node says so, the first one counts."""
        if index <= self.index:
            return
        self.index = index
        change = parse_change(data, revision)
        if change.now_ms < self.now_ms:
            raise SimViolation(
                f"S9 time runs back from {self.now_ms} to {change.now_ms} at {index}"
            )
        if change.now_ms > self.true_ms() + EARLY_MS:
            ahead = change.now_ms - self.true_ms()
            raise SimViolation(f"S9 time in the state is {ahead} ms ahead at {index}")
        self.now_ms = change.now_ms
        self.counts["changes"] += 1
        self.pieces.clear()
        # A run that ends is deleted in one table and put in another.
        for key, value in zip(change.keys, change.values, strict=True):
            if key[:1] == keys.ENDED:
                self._ended(keys.ended_of(key), parse(key, value, RunRecord))
        for key in change.deletes:
            if key[:1] == keys.RUN:
                self.runs.pop(keys.run_of(key), None)
            elif key[:1] == keys.ROOM:
                self.rooms.discard(key)
        leases: list[tuple[int, RunKey]] = []
        self._coalesced(change)
        for key, value in zip(change.keys, change.values, strict=True):
            if key[:1] == keys.RUN:
                self._run(change, keys.run_of(key), parse(key, value, RunRecord), leases)
            elif key[:1] == keys.BROKEN:
                reason = parse(key, value, BrokenRecord).reason
                self._broken(int.from_bytes(key[1:9], "big"), reason)
            elif key[:1] == keys.ROOM:
                self.rooms.add(key)
            elif key[:1] == keys.STEP:
                self.pieces["A1 and A2: jobs are notified of an end"] += 1
            elif key[:1] == keys.LEDGER:
                jid = int.from_bytes(key[1:9], "big")
                self._ledger(jid, keys.scheduled_at(key), parse(key, value, LedgerRecord))
            elif key[:1] == keys.JOB:
                self._job(int.from_bytes(key[1:9], "big"), parse(key, value, JobRecord))
        self._held(change)
        for what, count in sorted(self.pieces.items()):
            if count > self.most_pieces:
                raise SimViolation(
                    f"{what}: {count} in one change at {index}, whose time is used up by "
                    f"{self.most_pieces}"
                )
        for token, place in sorted(leases):
            if token <= self.token:
                raise SimViolation(f"S4 token {token} is given to {place} after {self.token}")
            self.token = token

    def _job(self, jid: int, job: JobRecord) -> None:
        self.names[jid] = job.name
        overlap = job.full_spec().overlap
        self.alone.discard(jid)
        if job.schedules and overlap.rule in ALONE and overlap.limit <= 1:
            self.alone.add(jid)

    def _coalesced(self, change: Change) -> None:
        """S11: beside what is COALESCED another time runs, waits or is still due."""
        found = dict(zip(change.keys, change.values, strict=True))
        books: dict[int, list[int]] = {}
        for key, value in found.items():
            if key[:1] == keys.LEDGER:
                entry = parse(key, value, LedgerRecord)
                # A backfill takes times out of stretches of before.
                if entry.made_in in (0, change.base + 1):
                    jid = int.from_bytes(key[1:9], "big")
                    books.setdefault(jid, []).append(entry.outcome)
        for jid, outcomes in books.items():
            if COALESCED not in outcomes or not DECIDED.isdisjoint(outcomes):
                continue
            state = parse(keys.state(jid), found[keys.state(jid)], StateRecord)
            if state.state == job_pb2.JobStatus.STATE_DELETING:
                # The job was deleted in the same change, and what was to run with it.
                continue
            waits = any(part.cause == SCHEDULED for part in state.backlog)
            if not waits and not 0 < state.next_due_at_ms <= change.now_ms:
                raise SimViolation(
                    f"S11 times of {self.names.get(jid)} are COALESCED, and none runs"
                )

    def _run(
        self, change: Change, place: RunKey, run: RunRecord, leases: list[tuple[int, RunKey]]
    ) -> None:
        before = self.runs.get(place)
        if before is None:
            self._new(change, place, run)
        past = {attempt.token: attempt for attempt in run.attempts}
        held = before is not None and before.state == RUNNING
        if before is not None and held and before.token in past:
            end = run_pb2.Attempt.End.Name(past[before.token].end)
            self._fate(before.token, end.removeprefix("END_"))
            held = False
        if run.state == RUNNING and (before is None or run.token != before.token):
            if held and before is not None:
                raise SimViolation(
                    f"S4 {place} is leased as {run.token} while {before.token} still stands"
                )
            leases.append((run.token, place))
            self.counts["leases"] += 1
        if run.attempt > (before.attempt if before is not None else 0) + 1:
            raise SimViolation(f"S7 {place} goes on with attempt {run.attempt}")
        self.runs[place] = run

    def _new(self, change: Change, place: RunKey, run: RunRecord) -> None:
        jid, occurrence = place
        scheduled_ms = keys.scheduled_of(occurrence)
        if place in self.fired:
            raise SimViolation(f"S2 {self.names.get(jid)} ran twice for {scheduled_ms}")
        if run.cause == SCHEDULED and occurrence != keys.occurrence_of(scheduled_ms):
            raise SimViolation(f"S2 {self.names.get(jid)} has another run for {scheduled_ms}")
        if run.cause == SCHEDULED and self.true_ms() < scheduled_ms - EARLY_MS:
            raise SimViolation(
                f"S3 {place} fires {scheduled_ms - self.true_ms()} ms before its time"
            )
        if run.cause == SCHEDULED and change.now_ms < scheduled_ms:
            raise SimViolation(f"S3 {place} fired at {change.now_ms}, before {scheduled_ms}")
        if run.cause == SCHEDULED and jid in self.alone and run.phase not in WAITING:
            beside = self._under_way(jid)
            if beside:
                raise SimViolation(
                    f"S12 {self.names.get(jid)} begins a run for {scheduled_ms} beside {beside[0]}"
                )
        self.fired.add(place)
        self.pieces["A5: runs fire"] += run.cause == SCHEDULED
        self.counts["runs"] += 1
        self.counts["backfilled"] += run.cause == run_pb2.CAUSE_BACKFILL
        if run.cause == run_pb2.CAUSE_TRIGGER:
            self.triggered[jid] += 1

    def _held(self, change: Change) -> None:
        """S13, of the jobs of which a run has ended; of one that goes all runs end."""
        found = dict(zip(change.keys, change.values, strict=True))
        ended = {keys.ended_of(key)[0] for key in found if key[:1] == keys.ENDED}
        waiting = {jid for (jid, _), run in self.runs.items() if run.phase == HELD}
        for jid in sorted(ended & waiting):
            state = parse(keys.state(jid), found[keys.state(jid)], StateRecord)
            is_free = not self._under_way(jid) and keys.room(jid) not in self.rooms
            if is_free and state.state in GOES_ON:
                raise SimViolation(f"S13 a run of {self.names.get(jid)} is held for nothing")

    def _under_way(self, jid: int) -> list[int]:
        return [at for (of, at), run in self.runs.items() if of == jid and run.phase not in WAITING]

    def _ended(self, place: RunKey, run: RunRecord) -> None:
        before = self.runs.get(place)
        if place in self.ended:
            if self.ended[place].token != run.token or self.ended[place].state != run.state:
                raise SimViolation(f"S6 {place} ended twice")
            return
        self.ended[place] = run
        self.pieces["A3: runs give way"] += run.state in GAVE_WAY
        self.counts["replaced"] += run.error is not None and "a newer run" in run.error.message
        if before is not None and before.state == RUNNING and before.token == run.token:
            self._fate(run.token, run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_"))
        if run.state == SUCCEEDED:
            self.counts["completions"] += 1
            if before is None or before.state != RUNNING or before.token != run.token:
                raise SimViolation(
                    f"S6 {place} succeeded under {run.token}, which was not its lease"
                )

    def _fate(self, token: int, how: str) -> None:
        if self.fates.setdefault(token, how) != how:
            raise SimViolation(f"S6 lease {token} ended as {self.fates[token]} and as {how}")
        if how == "LAPSED":
            self.counts["lapses"] += 1

    def _ledger(self, jid: int, at_ms: int, entry: LedgerRecord) -> None:
        book = self.books.setdefault(jid, JobLedger())
        last_ms = entry.last_at_ms
        doubled = book.knows(at_ms) or any(at_ms <= at <= last_ms for at in book.alone)
        if doubled:
            raise SimViolation(f"S2 {self.names.get(jid)} has two outcomes for {at_ms}")
        if last_ms:
            book.stretches[at_ms] = last_ms
        else:
            book.alone.add(at_ms)

    def scanned(self, entries: int) -> None:
        """A decision is made that walked over so many entries of the ledger."""
        if entries > self.most_scanned:
            raise SimViolation(
                f"A4: a decision walks over {entries} entries of the ledger; {self.most_scanned} "
                "must do"
            )

    # What went to the outside.

    def heard_of(self, node: SchedulerNode, worker: str) -> None:
        self.heard[node.name, node.life, worker] = node.clock_ms()

    def troubled(self, node: SchedulerNode) -> None:
        """S10: no rule fails but for what was planted, which is set aside."""
        troubles = node.leader.troubles
        wrong = [one for one in troubles.last if PLANTED not in one.reason]
        if wrong:
            raise SimViolation(f"S10 {wrong[0].what} failed on {node.name}: {wrong[0].reason}")
        if troubles.counts["refused"]:
            raise SimViolation(f"S10 a call failed in the rules of {node.name}")

    def slipped(self, what: str, error: Exception) -> None:
        """A rule does not fail, it cannot be carried out as it is written."""
        self.slip = self.slip or f"{what}: {type(error).__name__}: {error}"

    def _broken(self, jid: int, reason: str) -> None:
        self.counts["set aside"] += 1
        if PLANTED not in reason:
            raise SimViolation(f"S10 {self.names.get(jid)} was set aside: {reason}")

    def gained(self, node: SchedulerNode) -> None:
        self.terms[node.name, node.life] = node.clock_ms()

    def lapses(self, node: SchedulerNode, worker: str) -> None:
        """S9: a leader says that a worker is gone."""
        heard = self.heard.get((node.name, node.life, worker), 0)
        since = max(heard, self.terms.get((node.name, node.life), 0))
        silent = node.clock_ms() - since
        if silent < LAPSE_MS:
            raise SimViolation(f"S9 {worker} lapses on {node.name} after {silent} ms of silence")

    def acknowledged(self, ack: worker_pb2.ResultAck, succeeded: bool) -> None:
        """S6: a worker was assured that its report counts."""
        fate = self.fates.get(ack.token, "nothing")
        good = {"SUCCEEDED"} if succeeded else {"FAILED", "CANCELLED"}
        if not ack.reason and fate not in good:
            raise SimViolation(f"S6 the end of lease {ack.token} is acknowledged; it is {fate}")

    # The end.

    def recount(self, store: Reading, anchor_ms: int, true_ms: int) -> int:
        """S2: of the scheduled times of each job each has one outcome; return how many there are.

        Jobs here have one interval from the same anchor, or none, so they can be counted by hand.
        """
        found = 0
        for key, value in store.scan(keys.JOB, keys.after(keys.JOB)):
            jid = int.from_bytes(key[1:9], "big")
            job = parse(key, value, JobRecord)
            stored = store.get(keys.state(jid))
            assert stored is not None
            state = parse(keys.state(jid), stored, StateRecord)
            if state.state == job_pb2.JobStatus.STATE_DELETING or not job.full_spec().schedules:
                continue
            is_broken = state.state == job_pb2.JobStatus.STATE_BROKEN
            if not is_broken and 0 < state.next_due_at_ms < true_ms - LATE_MS:
                late = true_ms - state.next_due_at_ms
                raise SimViolation(f"S8 {job.name} should have fired {late} ms ago")
            every_ms = job.full_spec().schedules[0].interval.every.ToMilliseconds()
            since_ms, next_ms = job.schedules_since_ms, state.next_scheduled_at_ms
            first = anchor_ms + ((since_ms - anchor_ms) // every_ms + 1) * every_ms
            book = self.books.get(jid, JobLedger())
            for at_ms in range(first, next_ms, every_ms):
                found += 1
                waits = any(part.next_at_ms <= at_ms < part.to_ms for part in state.backlog)
                if not waits and not book.knows(at_ms):
                    raise SimViolation(f"S2 {job.name} has no outcome for {at_ms}")
            outside = [at for at in book.alone if (at - anchor_ms) % every_ms or at >= next_ms]
            if outside:
                raise SimViolation(
                    f"S2 {job.name} has outcomes for {outside}, which no schedule names"
                )
        return found
