"""The cluster as one node sees it, and what is wrong with it in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ...proto.v1 import cluster_pb2
from ...statemachine.core.instants import set_ms
from ...statemachine.firing.set_time import set_back_from
from ...statemachine.model import keys
from ...statemachine.model.record import UsageRecord, parse
from ...statemachine.runs import set_aside
from ..node import build, damage
from ..node.condition import CONNECTION_LOST, HANDED_OVER, SENT, SILENT
from ..node.event_feed import EventFeed
from ..node.node import Node
from ..node.peer_info import FEATURE_LEVEL, FRESH, ZONE_EDITION, NodeInfo, SelfReport
from ..raft.manifest import folder_of
from ..raft.port import Peer, Status
from .leadership import Leadership
from .observer import Observer
from .refused import RefusedCalls

Shown = cluster_pb2.Node
ROLES = {
    "leader": Shown.ROLE_LEADER,
    "follower": Shown.ROLE_FOLLOWER,
    "candidate": Shown.ROLE_CANDIDATE,
}
WHY = {
    HANDED_OVER: cluster_pb2.Election.REASON_HANDED_OVER,
    CONNECTION_LOST: cluster_pb2.Election.REASON_CONNECTION_LOST,
    SILENT: cluster_pb2.Election.REASON_SILENT,
}
BEHIND_ENTRIES = 10_000
STALE_MAX = 10.0  # Seconds without a message of a leader that are a problem of the cluster.
EXPIRES_SOON_S = 14 * 86_400
# Sums over thousands of namespaces take tens of milliseconds of the loop, and anybody who may look
# may ask: those over more than so many are shown again for a while.
SUMMED, SUMS_S = 1_000, 1.0


class StatusView:
    """Shows the status of the cluster."""

    def __init__(
        self,
        node: Node,
        feed: EventFeed,
        leadership: Leadership,
        observer: Observer,
        refused: RefusedCalls,
    ) -> None:
        self.node, self.feed, self.leadership = node, feed, leadership
        self.observer, self.refused = observer, refused
        # The sums over the namespaces, and until when they are shown again.
        self._sums, self._sums_until = (0, 0, 0), float("-inf")

    def show(self, only: int | None = None) -> cluster_pb2.ClusterStatus:
        """To whom all may be shown, or one namespace only, by its number."""
        node, status, meta = self.node, self.node.status(), self.node.replica.meta
        voters = {name: peer for name, peer in status.peers.items() if peer.voter}
        reachable = sum(peer.connected for peer in voters.values())
        majority = len(voters) // 2 + 1
        shown = cluster_pb2.ClusterStatus(
            cluster_id=node.spec.cluster, node=node.name, leader=node.leader_name,
            term=status.term, commit_index=status.commit, applied_index=meta.applied_index,
            revision=meta.revision, oldest_revision=self.feed.oldest(),
            nodes=[self._node(name, peer, status) for name, peer in sorted(status.peers.items())],
            quorum=bool(voters) and reachable >= majority, margin=max(0, reachable - majority),
            fingerprint=meta.fingerprint.hex(), refused=self.refused.count,
        )  # fmt: skip
        shown.feature_level = min((one.feature_level or FEATURE_LEVEL for one in shown.nodes),
                                  default=FEATURE_LEVEL)  # fmt: skip
        if node.leader_name:
            set_ms(shown.leader_since, self.leadership.since_ms)
        if only is None:
            self._show_of_all(shown)
        else:
            self._show_of_one(shown, only)
        self._show_long_steps(shown)
        self._show_snapshot(shown)
        self._show_elections(shown)
        shown.problems.extend(self._problems(shown, status))
        return shown

    def _node(self, name: str, peer: Peer, status: Status) -> Shown:
        about = self.about(name)
        shown = Shown(
            name=name, peer_address=peer.address, client_address=self.node.client_address(name),
            reachable=peer.connected, match_index=peer.match,
        )  # fmt: skip
        if name == self.node.name:
            shown.role = ROLES.get(status.role, Shown.ROLE_FOLLOWER)
            shown.match_index = status.durable
            shown.applied_index = status.applied
            shown.version, shown.zone_edition = self.node.spec.version, ZONE_EDITION
            shown.feature_level, shown.build = FEATURE_LEVEL, build.build()
            shown.serving = self.node.serves
            shown.key_ids.extend(self.node.secret_keys.ids)
            _show(shown, self.node.directory.report)
        else:
            leads = name == self.node.leader_name
            shown.role = Shown.ROLE_LEADER if leads else Shown.ROLE_FOLLOWER
        if not peer.voter:
            shown.role = Shown.ROLE_LEARNER
        if about is not None:
            shown.applied_index = about.applied_index
            shown.version, shown.zone_edition = about.version, about.zone_edition
            shown.feature_level, shown.serving = about.feature_level, about.serving
            shown.build = about.build
            shown.key_ids.extend(about.key_ids)
            shown.clock_skew.FromMilliseconds(about.wall_skew_ms)
            _show(shown, about.report)
        return shown

    def _workers(self) -> int:
        """Sessions, as the leader has them or sent them a moment ago."""
        if self.node.leads:
            return len(self.node.sessions.by_worker)
        about = self.about(self.node.leader_name)
        return about.workers if about is not None else 0

    def about(self, name: str) -> NodeInfo | None:
        """What a node sent of itself just now."""
        about = self.node.directory.peer_infos.get(name)
        if about is None or self.node.spec.seconds() - about.heard_at > FRESH:
            return None
        return about

    def _show_of_all(self, shown: cluster_pb2.ClusterStatus) -> None:
        """What is of all namespaces."""
        shown.workers = self._workers()
        tally = self.observer.tally() if self.node.leads else None
        if tally is not None:
            shown.tally.CopyFrom(tally)
        for trouble in self.node.leader.troubles.last:
            one = shown.set_aside.add(what=trouble.what, reason=trouble.reason)
            set_ms(one.time, trouble.at_ms)
        shown.jobs, shown.live_runs, shown.backlog = self._summed()
        shown.broken_jobs = set_aside.count(self.node.replica.store)

    def _show_of_one(self, shown: cluster_pb2.ClusterStatus, number: int) -> None:
        """What is of one namespace, which may be gone."""
        key = keys.usage(max(0, number))
        value = self.node.replica.store.get(key) if number >= 0 else None
        if value is not None:
            usage = parse(key, value, UsageRecord)
            shown.jobs, shown.live_runs, shown.backlog = usage.jobs, usage.live, usage.backlog

    def _summed(self) -> tuple[int, int, int]:
        """Jobs, runs under way and backlog of all namespaces."""
        store, seconds = self.node.replica.store, self.node.spec.seconds
        began = seconds()
        if began >= self._sums_until:
            count = jobs = live = backlog = 0
            for key, value in store.scan(keys.USAGE, keys.after(keys.USAGE)):
                usage = parse(key, value, UsageRecord)
                jobs, live, backlog = jobs + usage.jobs, live + usage.live, backlog + usage.backlog
                count += 1
            self._sums = jobs, live, backlog
            self._sums_until = began + SUMS_S if count > SUMMED else began
            self.node.steps.end("sums of the status", began)
        return self._sums

    def _show_long_steps(self, shown: cluster_pb2.ClusterStatus) -> None:
        steps = self.node.steps
        shown.long_steps = steps.count
        for step in steps.last:
            long = shown.last_long_steps.add(what=step.what)
            long.duration.FromMilliseconds(int(step.seconds * 1000))
            set_ms(long.time, step.at_ms)

    def _show_snapshot(self, shown: cluster_pb2.ClusterStatus) -> None:
        latest = self.node.consensus.latest_snapshot
        if latest is not None:
            folder = self.node.disk.root / folder_of(latest.index)
            set_ms(shown.snapshot_time, folder.stat().st_mtime_ns // 1_000_000)

    def _show_elections(self, shown: cluster_pb2.ClusterStatus) -> None:
        for one in self.node.condition.took_over()[:SENT]:
            election = shown.elections.add(term=one.term, leader=one.leader, before=one.before)
            election.reason = WHY.get(one.why, cluster_pb2.Election.REASON_UNSPECIFIED)
            set_ms(election.time, one.at_ms)

    def _problems(self, shown: cluster_pb2.ClusterStatus, status: Status) -> Iterator[str]:
        waits = self.node.driver.bootstrap_waits()
        if waits:
            # There are no voters yet, so nothing else is known.
            yield waits
            return
        yield from self._agreement(shown, status)
        if status.full:
            yield f"The disk of {shown.node} is full; free space on it."
        yield from self._certificates(shown)
        yield from self._time_ahead()
        yield from self._stand_still()
        yield from self._addresses(status)
        yield from self._damage(shown, status)
        if self.node.directory.diverged:
            yield f"The state of {shown.node} differs from that of a majority; it serves no longer."
        for one in shown.nodes:
            yield from self._problems_of(one, shown)
        yield from self.node.directory.differences()
        yield from self._set_aside(shown)

    def _agreement(self, shown: cluster_pb2.ClusterStatus, status: Status) -> Iterator[str]:
        """Who leads, and how many may be lost."""
        if not shown.leader:
            yield "No leader is known; is a majority of the nodes up, and do they reach each other?"
        elif self.node.driver.staleness() > STALE_MAX:
            yield f"{shown.node} has heard nothing from a leader for {STALE_MAX:.0f} s."
        voters = [one for one in shown.nodes if one.role != Shown.ROLE_LEARNER]
        if not shown.quorum:
            up = sum(one.reachable for one in voters)
            yield f"{up} of {len(voters)} voters are reachable; that is no majority."
        elif warning := too_few(len(voters), len(self.node.spec.members)):
            yield warning
        elif len(voters) > 2 and not shown.margin:
            yield "The next voter that is lost stops the cluster."
        if status.missing and not shown.leader:
            yield (
                f"Entries up to {status.missing} are committed, and {shown.node} ends before: "
                "whoever holds them must lead. If its disk is lost for good, what was acknowledged "
                "last is lost with it: raftsched node recover --help"
            )

    def _certificates(self, shown: cluster_pb2.ClusterStatus) -> Iterator[str]:
        now_s = self.node.spec.wall_ms() / 1000
        for door, at in self.node.condition.expiries.items():
            if at - now_s < EXPIRES_SOON_S:
                days = max(0, int((at - now_s) // 86_400))
                when = f"in {days} days" if at > now_s else "already, or is not valid"
                yield (
                    f"The certificate of tls.{door} of {shown.node} ends {when}; replace its "
                    "files, which are read again by themselves."
                )

    def _time_ahead(self) -> Iterator[str]:
        ahead_ms = self.node.ahead_ms
        if ahead_ms:
            until = datetime.fromtimestamp(self.node.replica.meta.now_ms / 1000, UTC)
            yield (
                f"The state's time is {length_of(ahead_ms)} ahead of the clocks, which were wrong; "
                f"nothing scheduled fires until {until:%Y-%m-%dT%H:%M:%SZ}. "
                "'raftsched cluster set-time --dry-run' shows what setting it back means, "
                "'raftsched cluster set-time' does it."
            )

    def _damage(self, shown: cluster_pb2.ClusterStatus, status: Status) -> Iterator[str]:
        if status.bereft:
            yield (
                f"The state of {shown.node} was damaged and is set aside; it fetches another from "
                "the leader by itself."
            )
        aside_at = damage.set_aside_at(self.node.spec.folder)
        if aside_at:
            noticed = datetime.fromtimestamp(aside_at, UTC)
            yield (
                f"{shown.node} set files aside as damaged at {noticed:%Y-%m-%dT%H:%M:%SZ} and took "
                "others in their place; look at its disk and its log, then remove "
                f"{self.node.spec.folder / damage.ASIDE}."
            )

    def _stand_still(self) -> Iterator[str]:
        until_ms = set_back_from(self.node.replica.store)
        if until_ms > self.node.replica.meta.now_ms:
            until = datetime.fromtimestamp(until_ms / 1000, UTC)
            yield (
                "The state's time was set back: a job that decided on scheduled times ahead stands "
                f"still, until {until:%Y-%m-%dT%H:%M:%SZ} at most. 'raftsched job explain NAME' "
                "says whether it does, 'raftsched job resume NAME' brings it back."
            )

    def _set_aside(self, shown: cluster_pb2.ClusterStatus) -> Iterator[str]:
        if shown.broken_jobs:
            are = "job is" if shown.broken_jobs == 1 else "jobs are"
            yield (
                f"{shown.broken_jobs} {are} BROKEN, set aside since work on them failed; to find "
                "them: raftsched job list --state broken"
            )
        recent = self.node.leader.troubles.recent()
        if recent and shown.set_aside:
            last = self.node.leader.troubles.last[0]
            yield (
                f"{shown.node} gave up {recent} pieces of work of late; the last: {last.what}: "
                f"{last.reason}."
            )

    def _addresses(self, status: Status) -> Iterator[str]:
        """This node is configured to be somewhere else than the cluster was given."""
        me, listed = self.node.name, self.node.spec.members[self.node.name]
        listed_member = status.peers.get(me)
        if listed_member is None:
            return
        for who, in_cluster, listens, flag in (
            ("nodes", listed_member.address, listed.peer, "peer"),
            ("clients", listed_member.client, listed.client, "client"),
        ):
            if in_cluster and in_cluster != listens:
                yield (
                    f"{me} is configured to be at {listens} for {who}, and the cluster was given "
                    f"{in_cluster}; correct its configuration, or: "
                    f"raftsched cluster move {me} --{flag} {listens}"
                )

    def _problems_of(self, one: Shown, shown: cluster_pb2.ClusterStatus) -> Iterator[str]:
        name = one.name
        if not one.reachable:
            refused = self.node.consensus.refusal_of(name)
            why = f": {name} {refused}" if refused else ""
            yield f"{name} is not reachable from {shown.node}{why}."
            if self.node.consensus.is_replaced(name):
                yield (
                    f"The folder of {name} was taken for lost, and another one has its place; stop "
                    "it, empty this folder or put back the other one, start it again."
                )
            seen_at = self.node.consensus.foreign_at(name)
            if seen_at is not None and self.node.spec.seconds() - seen_at < FRESH:
                yield (
                    f"The folder of {name} holds another history of this cluster, from before or "
                    "beside a restore or recovery; stop it, empty its folder, start it again."
                )
            return
        if not one.serving:
            yield f"{name} does not answer calls: it starts, drains, or its state differs."
        if abs(one.clock_skew.ToMilliseconds()) > self.node.spec.skew_max_ms:
            ms = one.clock_skew.ToMilliseconds()
            yield f"The clock of {name} is {ms} ms away from that of {shown.node}; set it by NTP."
        if one.applied_index and shown.commit_index - one.applied_index > BEHIND_ENTRIES:
            behind = shown.commit_index - one.applied_index
            yield f"{name} is {behind} entries behind."


def _show(shown: Shown, report: SelfReport) -> None:
    """How a node is, in its own words."""
    if report.sync_ms:
        shown.slowest_sync.FromMicroseconds(round(report.sync_ms * 1_000))
    if report.certificate_at is not None:
        set_ms(shown.certificate_end_time, round(report.certificate_at * 1_000))


def too_few(voters: int, configured: int) -> str:
    """What a cluster of so few voters does not stand. One node by itself is what its operator has
    chosen; one that is left of more may be a mistake."""
    if voters == 1 and configured > 1:
        return (
            "One node votes: whatever happens to its disk, everything is lost. Add two others: "
            "raftsched cluster add --help"
        )
    if voters == 2:
        return (
            "Two nodes vote: no failure is survived, since the loss of either stops the cluster. "
            "Add a third: raftsched cluster add --help"
        )
    return ""


def length_of(ms: int) -> str:
    """ "59 min", "12 s"."""
    return f"{ms // 60_000} min" if ms >= 120_000 else f"{ms // 1000} s"
