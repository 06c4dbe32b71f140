"""A worker's side of a session: what to say, what to start and what to stop.

It does no I/O and reads no clock: frames and the time are handed in, and it answers with Orders
and with frames to send. The rules that it keeps are numbered at the top of worker.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.timestamp_pb2 import Timestamp

from ...proto.v1 import run_pb2, worker_pb2
from ...proto.v1.worker_pb2 import Lease, Result, ResultAck, Stop, WorkRequest, WorkResponse
from .answer_times import AnswerTimes
from .deadlines import LeaseDeadlines
from .outbox import WorkerOutbox

# Limits of the contract.
LEASES_MAX = 10_000
# No more is asked for while reports of so many bytes wait for their acknowledgement.
REPORT_BYTES_MAX = 64 * 1024 * 1024
# A stream that does not say welcome in this time is given up; the next one gets twice the time, as
# a leader that all workers come to at once must not be asked faster than it can answer.
WELCOME_S, WELCOME_MAX_S = 3.0, 24.0
# A hung server is noticed after a beat and the time for its answer; more beats are more work for a
# leader.
BEATS_PER_HEARTBEAT = 3
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
        # The server of this stream has answered our drain, or asked for it: no lease will come.
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
        self._outbox = WorkerOutbox(now)
        self._reports = self._outbox.reports
        # Handlers under way, those of lost leases included: they still take up a slot.
        self._busy = 0
        self._deadlines = LeaseDeadlines()
        # The server's clock minus ours, at the least.
        self._offset = 0.0
        self._open = False
        self._welcome_s = WELCOME_S
        self._hello_due = False
        self._drain_sent = False
        self._open_credits = 0
        self._opened_at = now
        self._sent_at = now
        self._answers = AnswerTimes(HEARTBEAT_S, now)

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
        self.welcomed = self.drained = self._drain_sent = False
        self.drain_reason = ""
        self._open_credits = 0
        self._opened_at = self._sent_at = now
        self._answers.opened(now)
        self._outbox.opened(now)

    def closed(self) -> None:
        """The stream is gone; that alone ends no lease."""
        self._open = self.welcomed = False

    def received(self, frame: WorkResponse, now: float) -> Orders:
        """The server said this."""
        orders = Orders()
        self._answers.received(frame.beat, now, works=bool(frame.leases or frame.acks))
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
            self.drained = self.draining = self._drain_sent = True
            self.drain_reason = frame.drain_reason
        if frame.HasField("redirect"):
            orders.reconnect = frame.redirect.reason or "the node does not lead"
            orders.redirected, orders.leader = True, frame.redirect.leader
        return orders

    def _welcome(self, welcome: worker_pb2.Welcome) -> None:
        self.welcomed = self._hello.welcomed = True
        self._welcome_s = WELCOME_S
        self.heartbeat_s = welcome.heartbeat.ToMilliseconds() / 1000 or HEARTBEAT_S
        self._answers.heartbeat_s = self.heartbeat_s
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
                self._deadlines.put(token, self._here(lease.deadline))
            start.append(lease)

    def _leave_out_lost(self, orders: Orders) -> None:
        """What is lost by the frame that brings it is not begun."""
        standing = [lease for lease in orders.start if lease.token in self._held]
        self._busy -= len(orders.start) - len(standing)
        orders.start = standing

    def _here(self, deadline: Timestamp) -> float:
        """When an instant of the server comes by our clock, at the earliest."""
        return deadline.ToMilliseconds() / 1000 - self._offset

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
        if not self._outbox.extension_answered(ack.token) or not self.holds(ack.token):
            return
        if ack.reason in OVER:
            self._lost(ack.token, ack.message or ack.reason, orders)
            return
        if ack.HasField("deadline"):
            self._deadlines.put(ack.token, self._here(ack.deadline))
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
        self._outbox.replace(token, less)

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
        self._outbox.forget(token)
        if self._deadlines.at:
            self._deadlines.at.pop(token, None)

    def ended(self, token: int, result: Result) -> None:
        """A handler has ended. If the lease is lost, nobody wants to know how."""
        self._busy -= 1
        if self.holds(token):
            self._report(token, result)

    def _report(self, token: int, result: Result) -> None:
        self._outbox.report(token, result)
        if self._deadlines.at:
            self._deadlines.at.pop(token, None)

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
        if self.holds(report.token):
            self._outbox.progress(report)

    def extend(self, request: worker_pb2.ExtendRequest) -> None:
        """Ask for more time. The answer comes in Orders.extended."""
        if self.holds(request.token):
            self._outbox.extend(request)

    def drain(self) -> None:
        """Take no more (rule 6). What arrives from now on is given back at once."""
        self.draining = True

    def tick(self, now: float) -> Orders:
        """Look at the clock."""
        orders = Orders()
        for token in self._deadlines.expired(now):
            self._lost(token, "the lease's deadline has passed", orders)
        if self._works and now >= self._expires_at:
            self._expire(orders)
        if self._open:
            self._watch(now, orders)
            self._outbox.send_late_again(now, self.heartbeat_s)
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

    def _watch(self, now: float, orders: Orders) -> None:
        if orders.reconnect:
            return
        if not self.welcomed:
            if now >= self._opened_at + self._welcome_s:
                orders.reconnect = f"no welcome within {self._welcome_s:g} s"
                self._welcome_s = min(2 * self._welcome_s, WELCOME_MAX_S)
        elif now >= self._answers.received_at + 2 * self.heartbeat_s:
            orders.reconnect = f"nothing was heard for {2 * self.heartbeat_s:g} s"
        elif now >= self._answers.overdue_at:
            timeout_s = self._answers.timeout_s
            orders.reconnect = f"no answer within {timeout_s:.1f} s, as there were before"
            self._answers.allow_more()

    def inquires(self, now: float) -> bool:
        """Whether to ask another node now who leads; if so, the stream still stands."""
        return self.welcomed and self._answers.inquires(now)

    def next_at(self) -> float:
        """When to tick, or to ask for frames, at the latest."""
        times = [self._deadlines.first]
        if self._works:
            times.append(self._expires_at)
        if self._open:
            times.append(self._stream_at())
        return min(times)

    @property
    def _beat_at(self) -> float:
        regular = self._sent_at + self.heartbeat_s / BEATS_PER_HEARTBEAT
        return min(regular, self._answers.ask_early_at)

    def _stream_at(self) -> float:
        if not self.welcomed:
            return self._opened_at + self._welcome_s
        answers = self._answers
        times = [self._beat_at, answers.received_at + 2 * self.heartbeat_s]
        times += [answers.overdue_at, answers.inquire_at]
        times.append(self._outbox.next_at(self.heartbeat_s))
        return min(times)

    def frames(self, now: float) -> list[WorkRequest]:
        """What is to be said now, in frames of which each keeps to the limits."""
        if not self._open:
            return []
        if self._hello_due:
            return [self._sent(self._first_frame(), now)]
        if not self.welcomed:
            return []
        found = list(self._outbox.frames(now))
        credits = self._credits()
        drain = self.draining and not self._drain_sent
        due = credits or drain or now >= self._beat_at
        if due and not found:
            found.append(WorkRequest())
        if found:
            found[0].credits = credits
            self._open_credits += credits
            if drain:
                found[-1].drain = self._drain_sent = True
        return [self._sent(frame, now) for frame in found]

    def _sent(self, frame: WorkRequest, now: float) -> WorkRequest:
        # 0 would mean that none was read.
        frame.beat = int((now - self._epoch) * 1000) + 1
        self._sent_at = now
        self._answers.sent(frame.beat, now, has_report=bool(frame.results))
        return frame

    def _first_frame(self) -> WorkRequest:
        self._hello_due = False
        frame = WorkRequest(hello=self._hello)
        frame.hello.held.extend(
            worker_pb2.HeldLease(run=run, token=token) for token, run in self._held.items()
        )
        if self.draining:
            frame.drain = self._drain_sent = True
        else:
            frame.credits = self._open_credits = self._credits()
        return frame

    def _credits(self) -> int:
        if self.draining or self.drained or self._outbox.report_bytes > REPORT_BYTES_MAX:
            return 0
        # Leases that are held and credits that are out must fit into one hello.
        wanted = min(self._hello.slots - self._busy, LEASES_MAX - len(self._held))
        return max(0, wanted - self._open_credits)
