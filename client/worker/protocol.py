"""A worker's side of a session: what to say, what to start and what to stop.

It does no I/O and reads no clock: frames and the time are handed in, and it answers with Orders
and with frames to send. The rules that it keeps are numbered at the top of worker.proto.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message

from ...proto.v1 import run_pb2, worker_pb2
from ...proto.v1.worker_pb2 import Lease, Result, ResultAck, Stop, WorkRequest, WorkResponse

# Limits of the contract.
LEASES_MAX = 10_000
ITEMS_MAX = 1_000
FRAME_BYTES_MAX = 3 * 1024 * 1024
# No more is asked for while reports of so many bytes wait for their acknowledgement.
REPORT_BYTES_MAX = 64 * 1024 * 1024
# A stream that does not say welcome in this time is given up; the next one gets twice the time, as
# a leader that all workers come to at once must not be asked faster than it can answer.
WELCOME_S, WELCOME_MAX_S = 3.0, 24.0
# A server owes an answer to a beat within a heartbeat. One that has answered much sooner so far,
# and now does not, is left after twice the time that it took, but not before this.
PATIENCE_MIN_S = 0.8
# A server that owes an answer for so long, as followers wait for a leader before one of them
# stands, may lead no more: another node is asked, soon again, and later ever more seldom.
DOUBT_S, ASK_AGAIN_S, ASK_AGAIN_SHARE = 0.3, 0.1, 0.25
# A hung server is noticed after a beat and this patience; more beats are more work for a leader.
BEATS_PER_HEARTBEAT = 3
# What one slow answer counts for, one answer later.
FORGETTING = 0.7
# Progress waits this long for more of it, unless a frame leaves anyway.
PROGRESS_S = 0.25
# After these refusals of a result there is nothing left to do; after those the lease still stands.
OVER = frozenset({"LEASE_LOST", "ALREADY_REPORTED", "RUN_NOT_FOUND"})
REFUSED = frozenset({"FIELD_INVALID", "PAYLOAD_TOO_LARGE", "LIMIT_EXCEEDED"})
# Until the first welcome says better.
HEARTBEAT_S, LAPSE_S = 10.0, 30.0


@dataclass(slots=True)
class Orders:
    """What a step asks of the program around the session."""

    start: list[Lease] = field(default_factory=list)
    stop: list[Stop] = field(default_factory=list)
    # Answers to requests for more time.
    extended: list[ResultAck] = field(default_factory=list)
    # Set: end this stream and open another, for this reason.
    reconnect: str = ""
    # With `reconnect`: the node itself says so, and where the leader is. Empty: it does not know.
    redirected: bool = False
    leader: str = ""
    # For the log: things that should not happen.
    complaints: list[str] = field(default_factory=list)


class Session:
    """One worker id, from its first hello to its last goodbye, over any number of streams."""

    def __init__(self, hello: worker_pb2.WorkerHello, now: float) -> None:
        self.worker = hello.worker
        self.heartbeat_s, self.lapse_s = HEARTBEAT_S, LAPSE_S
        self.draining = False
        # The server of this stream has answered our drain, or told us to: no lease will come.
        self.drained = False
        self.drain_reason = ""
        self.welcomed = False
        self._hello = hello
        self._epoch = now
        # Rule 5: when the last word that the server is known to have read was said.
        self._heard = now
        # Leases whose end is not acknowledged, by token. Those of them that have ended here are in
        # _reports too.
        self._held: dict[int, str] = {}
        self._reports: dict[int, Result] = {}
        self._report_bytes = 0
        # Handlers under way, those of lost leases included: they still take up a slot.
        self._busy = 0
        self._unsent: dict[int, Result] = {}
        self._late: list[int] = []
        self._late_at = now
        self._progress: dict[int, worker_pb2.ProgressReport] = {}
        # What a failed attempt left for the next; it is said before the failure itself.
        self._last_words: dict[int, worker_pb2.ProgressReport] = {}
        self._extensions: dict[int, worker_pb2.ExtendRequest] = {}
        self._unsent_extensions: dict[int, worker_pb2.ExtendRequest] = {}
        # Leases with a deadline: when it comes by our clock, at the earliest.
        self._deadlines: dict[int, float] = {}
        self._deadline_heap: list[tuple[float, int]] = []
        # The server's clock minus ours, at the least.
        self._offset = 0.0
        self._open = False
        self._welcome_s = WELCOME_S
        self._hello_due = False
        self._drain_said = False
        self._open_credits = 0
        self._opened_at = now
        self._received_at = now
        self._sent_at = now
        self._progress_at = now
        # Since when the server owes an answer, to which beat, and whether that brought a report.
        self._asked_at: float | None = None
        self._asked_beat = 0
        self._asked_of_report = False
        # When another node was asked last who leads.
        self._inquired_at = now
        # How slow the slowest answer of late was, to a frame with nothing to answer but its beat,
        # and to one with a report.
        self._slowest_s = {False: HEARTBEAT_S, True: HEARTBEAT_S}

    @property
    def held(self) -> int:
        """Leases whose end is not acknowledged yet, and reports that wait for an answer."""
        return len(self._held)

    @property
    def busy(self) -> int:
        """Handlers under way, also those whose lease is lost."""
        return self._busy

    @property
    def idle(self) -> bool:
        return not self._held

    def holds(self, token: int) -> bool:
        """The lease is ours and has not ended here."""
        return token in self._held and token not in self._reports

    def opened(self, now: float) -> None:
        """A new stream begins. What the old one had not acknowledged is said again (rule 4)."""
        self._open, self._hello_due = True, True
        self.welcomed = self.drained = self._drain_said = False
        self.drain_reason = ""
        self._open_credits = 0
        self._opened_at = self._received_at = self._sent_at = self._late_at = now
        self._asked_at = None
        self._unsent = dict(self._reports)
        self._unsent_extensions = dict(self._extensions)
        self._late = []

    def closed(self) -> None:
        """The stream is gone; that alone ends no lease."""
        self._open = self.welcomed = False

    def received(self, frame: WorkResponse, now: float) -> Orders:
        """The server said this."""
        orders = Orders()
        self._received_at = now
        if self._asked_at is not None and frame.beat >= self._asked_beat:
            kind = self._asked_of_report
            took = now - self._asked_at
            self._slowest_s[kind] = max(took, self._slowest_s[kind] * FORGETTING)
            self._asked_at = None
        if frame.HasField("welcome"):
            self._welcome(frame.welcome)
        if frame.beat:
            self._heard = max(self._heard, self._epoch + (frame.beat - 1) / 1000)
        if frame.leases and self.welcomed:
            self._take(frame.leases, orders)
        elif frame.leases:
            # The hello did not list them, so the server gives them to somebody else.
            orders.complaints.append(f"{len(frame.leases)} leases came before the welcome")
        for ack in frame.acks:
            self._acknowledged(ack, orders)
        for stop in frame.stops:
            self._stop(stop, orders)
        if orders.start and orders.stop:
            self._leave_out_lost(orders)
        if frame.drain:
            # Rule 8: the next leader hears of it from us.
            self.drained = self.draining = self._drain_said = True
            self.drain_reason = frame.drain_reason
        if frame.HasField("redirect"):
            orders.reconnect = frame.redirect.reason or "the node does not lead"
            orders.redirected, orders.leader = True, frame.redirect.leader
        return orders

    def _welcome(self, welcome: worker_pb2.Welcome) -> None:
        self.welcomed = self._hello.welcomed = True
        self._welcome_s = WELCOME_S
        self.heartbeat_s = welcome.heartbeat.ToMilliseconds() / 1000 or HEARTBEAT_S
        self.lapse_s = welcome.lapse.ToMilliseconds() / 1000 or LAPSE_S
        # The hello was read, and the server's clock was read after it was sent.
        self._heard = max(self._heard, self._opened_at)
        self._offset = welcome.server_time.ToMilliseconds() / 1000 - self._opened_at

    def _take(self, leases: Sequence[Lease], orders: Orders) -> None:
        held, start = self._held, orders.start
        self._open_credits = max(0, self._open_credits - len(leases))
        for lease in leases:
            token = lease.token
            if token in held:
                continue
            held[token] = lease.run
            if self.draining:
                self.give_back(token)
                continue
            self._busy += 1
            if lease.HasField("deadline"):
                self._set_deadline(token, lease.deadline.ToMilliseconds())
            start.append(lease)

    def _leave_out_lost(self, orders: Orders) -> None:
        """What is lost by the frame that brings it is not begun."""
        standing = [lease for lease in orders.start if lease.token in self._held]
        self._busy -= len(orders.start) - len(standing)
        orders.start = standing

    def _set_deadline(self, token: int, at_ms: int) -> None:
        at = at_ms / 1000 - self._offset
        self._deadlines[token] = at
        heapq.heappush(self._deadline_heap, (at, token))
        if len(self._deadline_heap) > 2 * len(self._deadlines) + ITEMS_MAX:
            # Most of it speaks of leases that ended long before their deadline.
            self._deadline_heap = [(at, token) for token, at in self._deadlines.items()]
            heapq.heapify(self._deadline_heap)

    def _acknowledged(self, ack: ResultAck, orders: Orders) -> None:
        token, reason = ack.token, ack.reason
        if ack.subject == ResultAck.SUBJECT_EXTENSION:
            return self._extension_answered(ack, orders)
        if not reason or reason in OVER:
            self._forget(token)
        elif reason in REFUSED:
            self._report_less(token, ack, orders)
        else:
            # Not known to this version: the report stays and is sent again in a while.
            orders.complaints.append(f"report on token {token}: {reason}: {ack.message}")
        return None

    def _extension_answered(self, ack: ResultAck, orders: Orders) -> None:
        if self._extensions.pop(ack.token, None) is None or not self.holds(ack.token):
            return
        if ack.reason in OVER:
            self._lost(ack.token, ack.message or ack.reason, orders)
            return
        if ack.HasField("deadline"):
            self._set_deadline(ack.token, ack.deadline.ToMilliseconds())
        orders.extended.append(ack)

    def _report_less(self, token: int, ack: ResultAck, orders: Orders) -> None:
        """The lease still stands, so something must be reported that can be taken (rule 3)."""
        refused = self._reports.get(token)
        if refused is None:
            return
        orders.complaints.append(
            f"the {refused.WhichOneof('end')} of run {refused.run} was refused: "
            f"{ack.reason}: {ack.message}"
        )
        less = Result(run=refused.run, token=token)
        if refused.HasField("given_back"):
            # Even the barest report was refused: the lease ends with the session, or its deadline.
            self._forget(token)
            return
        if refused.failure.error.kind == "ResultRefused":
            less.given_back.SetInParent()
        else:
            message = f"the worker's report was refused: {ack.reason}: {ack.message}"
            less.failure.error.CopyFrom(
                run_pb2.RunError(kind="ResultRefused", message=message[:4_096])
            )
            less.failure.fatal = True
        self._report_bytes += less.ByteSize() - refused.ByteSize()
        self._reports[token] = self._unsent[token] = less

    def _stop(self, stop: Stop, orders: Orders) -> None:
        token = stop.token
        if stop.kind == Stop.KIND_LOST:
            self._lost(token, stop.message or "the server says that the lease is gone", orders)
        elif stop.kind == Stop.KIND_CANCEL and self.holds(token):
            orders.stop.append(stop)

    def _lost(self, token: int, why: str, orders: Orders) -> None:
        if self.holds(token):
            run = self._held[token]
            orders.stop.append(Stop(token=token, run=run, kind=Stop.KIND_LOST, message=why))
        self._forget(token)

    def _forget(self, token: int) -> None:
        self._held.pop(token, None)
        report = self._reports.pop(token, None)
        if report is not None:
            self._report_bytes -= report.ByteSize()
            self._unsent.pop(token, None)
        if self._progress or self._last_words or self._extensions or self._deadlines:
            self._forget_wishes(token)

    def _forget_wishes(self, token: int) -> None:
        self._progress.pop(token, None)
        self._last_words.pop(token, None)
        self._extensions.pop(token, None)
        self._unsent_extensions.pop(token, None)
        self._deadlines.pop(token, None)

    def ended(self, token: int, result: Result) -> None:
        """A handler has ended. If the lease is lost, nobody wants to know how."""
        self._busy -= 1
        if self.holds(token):
            self._report(token, result)

    def _report(self, token: int, result: Result) -> None:
        self._reports[token] = self._unsent[token] = result
        if self._progress or self._extensions or self._deadlines:
            words = self._progress.get(token)
            self._forget_wishes(token)
            if words is not None and result.HasField("failure"):
                self._last_words[token] = words
            elif words is not None and result.HasField("given_back"):
                back = result.given_back
                back.checkpoint = back.checkpoint or words.checkpoint
        self._report_bytes += result.ByteSize()

    def give_back(self, token: int) -> None:
        """Report a lease as not done, whether or not its handler has ended."""
        if self.holds(token):
            back = worker_pb2.GivenBack()
            self._report(token, Result(run=self._held[token], token=token, given_back=back))

    def give_back_all(self) -> None:
        for token in list(self._held):
            self.give_back(token)

    def progress(self, report: worker_pb2.ProgressReport) -> None:
        """Say how far an attempt is, with the next frame; the newest word of each counts."""
        token = report.token
        if not self.holds(token):
            return
        self._progress[token] = merged(self._progress.get(token), report)

    def extend(self, request: worker_pb2.ExtendRequest) -> None:
        """Ask for more time. The answer comes in Orders.extended."""
        if self.holds(request.token):
            self._extensions[request.token] = self._unsent_extensions[request.token] = request

    def drain(self) -> None:
        """Take no more (rule 6). What arrives from now on is given back at once."""
        self.draining = True

    def tick(self, now: float) -> Orders:
        """Look at the clock."""
        orders = Orders()
        self._expire_deadlines(now, orders)
        if self._works and now >= self._expires_at:
            self._expire(orders)
        if self._open:
            self._watch(now, orders)
            self._send_late_again(now)
        return orders

    @property
    def _works(self) -> bool:
        """There are leases that have not ended here."""
        return len(self._held) > len(self._reports)

    @property
    def _expires_at(self) -> float:
        return self._heard + self.lapse_s * 0.9

    def _expire(self, orders: Orders) -> None:
        """Rule 5. What has ended here stays held: its report may still be the first."""
        why = f"the worker was not heard for {self.lapse_s:g} s, so the lease may have lapsed"
        for token in [token for token in self._held if token not in self._reports]:
            self._lost(token, why, orders)
        if self._open:
            orders.reconnect = why

    def _expire_deadlines(self, now: float, orders: Orders) -> None:
        heap = self._deadline_heap
        while heap and heap[0][0] <= now:
            at, token = heapq.heappop(heap)
            if self._deadlines.get(token) == at:
                self._lost(token, "the lease's deadline has passed", orders)

    def _watch(self, now: float, orders: Orders) -> None:
        if orders.reconnect:
            return
        if not self.welcomed:
            if now >= self._opened_at + self._welcome_s:
                orders.reconnect = f"no welcome within {self._welcome_s:g} s"
                self._welcome_s = min(2 * self._welcome_s, WELCOME_MAX_S)
        elif now >= self._received_at + 2 * self.heartbeat_s:
            orders.reconnect = f"nothing was heard for {2 * self.heartbeat_s:g} s"
        elif self._asked_at is not None and now >= self._impatient_at(self._asked_at):
            orders.reconnect = f"no answer within {self._patience_s:.1f} s, as there were before"
            # Should it be slow and not dead, it gets more time on the next stream.
            kinds = (False, True) if self._asked_of_report else (False,)
            self._slowest_s |= dict.fromkeys(kinds, self._patience_s)

    @property
    def _patience_s(self) -> float:
        slowest = self._slowest_s[False]
        if self._asked_of_report:
            # That is answered as soon as it is recorded, a beat alone perhaps much later.
            slowest = min(self._slowest_s.values())
        return min(max(PATIENCE_MIN_S, 2 * slowest), 2 * self.heartbeat_s)

    def _impatient_at(self, asked_at: float) -> float:
        return max(asked_at, self._received_at) + self._patience_s

    def inquires(self, now: float) -> bool:
        """Whether to ask another node now who leads; if so, the stream still stands."""
        if now < self._inquire_at:
            return False
        self._inquired_at = now
        return True

    @property
    def _inquire_at(self) -> float:
        if self._asked_at is None or not self.welcomed:
            return float("inf")
        since = max(self._asked_at, self._received_at)
        # A server with very many workers answers a beat alone much later than a report.
        usual = 0.0 if self._asked_of_report else self._slowest_s[False]
        pause = max(ASK_AGAIN_S, ASK_AGAIN_SHARE * (self._inquired_at - since))
        return max(since + max(DOUBT_S, usual), self._inquired_at + pause)

    def _send_late_again(self, now: float) -> None:
        """Reports that no word was heard of for a whole heartbeat are said again (rule 3)."""
        if now < self._late_at + self.heartbeat_s:
            return
        self._unsent.update(
            (token, self._reports[token]) for token in self._late if token in self._reports
        )
        self._late = [token for token in self._reports if token not in self._unsent]
        self._late_at = now

    def next_at(self) -> float:
        """When to tick, or to ask for frames, at the latest."""
        times = [self._expires_at] if self._works else []
        if self._deadline_heap:
            times.append(self._deadline_heap[0][0])
        if self._open:
            times.append(self._stream_at())
        return min(times, default=float("inf"))

    @property
    def _beat_at(self) -> float:
        return self._sent_at + self.heartbeat_s / BEATS_PER_HEARTBEAT

    def _stream_at(self) -> float:
        if not self.welcomed:
            return self._opened_at + self._welcome_s
        times = [self._beat_at, self._received_at + 2 * self.heartbeat_s]
        if self._asked_at is not None:
            times += [self._impatient_at(self._asked_at), self._inquire_at]
        if self._progress:
            times.append(self._progress_at + PROGRESS_S)
        if self._reports:
            times.append(self._late_at + self.heartbeat_s)
        return min(times)

    def frames(self, now: float) -> list[WorkRequest]:
        """What is to be said now, in frames of which each keeps to the limits."""
        if not self._open:
            return []
        if self._hello_due:
            return [self._said(self._first_frame(), now)]
        if not self.welcomed:
            return []
        found = list(self._reporting_frames(now))
        credits = self._credits()
        drain = self.draining and not self._drain_said
        due = credits or drain or now >= self._beat_at
        if due and not found:
            found.append(WorkRequest())
        if found:
            found[0].credits = credits
            self._open_credits += credits
            if drain:
                found[-1].drain = self._drain_said = True
        return [self._said(frame, now) for frame in found]

    def _said(self, frame: WorkRequest, now: float) -> WorkRequest:
        # 0 would mean that none was read.
        frame.beat = int((now - self._epoch) * 1000) + 1
        self._sent_at = now
        if self._asked_at is None or (frame.results and not self._asked_of_report):
            self._asked_at, self._asked_beat = now, frame.beat
            self._asked_of_report = bool(frame.results)
        return frame

    def _first_frame(self) -> WorkRequest:
        self._hello_due = False
        frame = WorkRequest(hello=self._hello)
        frame.hello.held.extend(
            worker_pb2.HeldLease(run=run, token=token) for token, run in self._held.items()
        )
        if self.draining:
            frame.drain = self._drain_said = True
        else:
            frame.credits = self._open_credits = self._credits()
        return frame

    def _credits(self) -> int:
        if self.draining or self.drained or self._report_bytes > REPORT_BYTES_MAX:
            return 0
        # Leases that are held and credits that are out must fit into one hello.
        wanted = min(self._hello.slots - self._busy, LEASES_MAX - len(self._held))
        return max(0, wanted - self._open_credits)

    def _reporting_frames(self, now: float) -> Iterator[WorkRequest]:
        if self._unsent:
            results, self._unsent = list(self._unsent.values()), {}
            if self._last_words:
                words = [self._last_words[r.token] for r in results if r.token in self._last_words]
                yield from _split(words, "progress")
            yield from _split(results, "results")
        if self._unsent_extensions:
            requests, self._unsent_extensions = list(self._unsent_extensions.values()), {}
            yield from _split(requests, "extensions")
        if self._progress and now >= self._progress_at + PROGRESS_S:
            reports, self._progress = list(self._progress.values()), {}
            self._progress_at = now
            yield from _split(reports, "progress")


def merged(
    older: worker_pb2.ProgressReport | None, newer: worker_pb2.ProgressReport
) -> worker_pb2.ProgressReport:
    """One report for two of the same attempt: what the newer leaves out stands as it was."""
    if older is not None:
        newer.checkpoint = newer.checkpoint or older.checkpoint
        newer.log_tail = newer.log_tail or older.log_tail
        if not newer.HasField("progress") and older.HasField("progress"):
            newer.progress.CopyFrom(older.progress)
    return newer


def _split(items: Sequence[Message], name: str) -> Iterator[WorkRequest]:
    for start in range(0, len(items), ITEMS_MAX):
        yield from _fitting(items[start : start + ITEMS_MAX], name)


def _fitting(items: Sequence[Message], name: str) -> Iterator[WorkRequest]:
    frame = WorkRequest()
    getattr(frame, name).extend(items)
    # Some room is left for what else goes into the frame.
    if len(items) == 1 or frame.ByteSize() <= FRAME_BYTES_MAX - 1_024:
        yield frame
        return
    half = len(items) // 2
    yield from _fitting(items[:half], name)
    yield from _fitting(items[half:], name)
