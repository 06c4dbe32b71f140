"""A cluster that schedules: users, workers and wall clocks around the nodes of `cluster.py`."""

from __future__ import annotations

from ...proto.v1 import job_pb2
from ...statemachine.model import keys
from ...statemachine.model.record import JobRecord, parse
from ...statemachine.model.view import View
from ...statemachine.reads import audit
from ...statemachine.selfcheck import verify
from .bulk import BulkUser
from .client import Caller
from .cluster import Kit, SimCluster
from .moving import MovesOracle, MovingUser
from .node import SimNode
from .options import Options
from .oracle import LATE_MS, Oracle
from .scheduler import EPOCH_MS, SchedulerNode, SimReplica
from .user import ANCHOR_MS, Owned, User
from .waves import check_waves
from .worker import SimWorker
from .world import SimViolation

SETTLE = 3.0
WRONG = job_pb2.AuditFinding.VERDICT_WRONG


class SchedulerCluster(SimCluster):
    """See the head of this file."""

    def __init__(self, options: Options, kit: Kit) -> None:
        kind = MovesOracle if options.moves else Oracle
        self.oracle = kind(self.true_ms, options.steps)
        super().__init__(options, kit)
        if options.bulk:
            self.clients.append(BulkUser(len(self.clients), self))
        self.workers = [SimWorker(n, self, options.habits) for n in range(options.workers)]

    def new_node(self, name: str) -> SimNode:
        return SchedulerNode(name, self)

    def new_caller(self, number: int) -> Caller:
        return MovingUser(number, self) if self.options.moves else User(number, self)

    def true_ms(self) -> int:
        """What a clock that is right would say."""
        return EPOCH_MS + self.slept_ms + int(self.world.now * 1000)

    def begin_callers(self) -> None:
        super().begin_callers()
        for worker in self.workers:
            worker.beat()

    # The end.

    def settle(self) -> None:
        self.world.run(self.world.now + SETTLE)

    def check_end(self, names: list[str]) -> None:
        # Jobs go on firing, so everyone is level at some moments only.
        if not self.world.run(self.world.now + SETTLE, lambda: self.level(names)):
            raise SimViolation(f"{names} do not come to rest")
        nodes = [self.nodes[name] for name in names]
        replicas = [n.replica for n in nodes if isinstance(n, SchedulerNode) and n.core]
        first = replicas[0]
        for node, other in zip(names, replicas, strict=True):
            if other.items() != first.items():
                raise SimViolation(f"A1 {node} has another state than {names[0]}")
        wrong = verify.verify(first.store)
        if wrong:
            raise SimViolation(f"verify finds {len(wrong)} differences: {wrong[:3]}")
        self.oracle.counts["scheduled times"] = self.oracle.recount(
            first.store, ANCHOR_MS, self.oracle.true_ms()
        )
        if isinstance(self.oracle, MovesOracle):
            for caller in self.clients:
                if isinstance(caller, MovingUser):
                    self.oracle.check_user(caller)
            return
        late_before_ms = self.oracle.true_ms() - LATE_MS
        self.oracle.counts["waves"] = check_waves(first.store, late_before_ms)
        for caller in self.clients:
            if isinstance(caller, User):
                for owned in caller.jobs:
                    self.check_job(first, owned)

    def check_job(self, replica: SimReplica, owned: Owned) -> None:
        """S1, and the rules' own proof that no scheduled time was lost."""
        store, oracle = replica.store, self.oracle
        jids = [jid for jid, name in oracle.names.items() if name == owned.name]
        if len(jids) != 1:
            raise SimViolation(f"S1 {owned.name} exists {len(jids)} times")
        [jid] = jids
        value = store.get(keys.job_name(keys.namespace_of(jid), owned.name))
        if owned.deleted:
            return
        stored = store.get(keys.job(jid))
        if value is None or stored is None:
            raise SimViolation(f"S1 {owned.name} was acknowledged and is gone")
        job = parse(keys.job(jid), stored, JobRecord)
        payload = job.full_spec().payload.data
        if payload != owned.payload:
            raise SimViolation(f"S1 {owned.name} has {payload!r}, not {owned.payload!r}")
        if oracle.triggered[jid] != len(owned.triggers):
            raise SimViolation(
                f"S1 {owned.name} was triggered {oracle.triggered[jid]} times, "
                f"{len(owned.triggers)} were asked for"
            )
        view = View(store, replica.meta.now_ms)
        found = audit.audit(view, job_pb2.AuditJobRequest(job=owned.name), ())
        oracle.counts["times audited"] += found.expected
        oracle.counts["times unjudged"] += found.unjudged
        if found.wrong:
            wrong = (one.reason for one in found.findings if one.verdict == WRONG)
            raise SimViolation(f"S2 {owned.name}: {next(wrong)}, in {found}")
