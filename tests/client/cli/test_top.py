"""`raftsched top`: one look, and what it is made of."""

from __future__ import annotations

import contextlib
import signal
from itertools import islice
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from raftsched.client.cli.commands import top
from raftsched.client.cli.commands.top_snapshot import ClusterSnapshot, percentile, rates
from raftsched.proto.v1 import alert_pb2, cluster_pb2, worker_pb2

from ...rows import each
from ..stage import Stage, refusing
from .conftest import Cli

ONCE = ("top", "--once", "--every", "10ms")
Bands = list[tuple[int | None, int]]


class Play:
    """A node that answers what the rules do not know; a number of each call to count by."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = stage.nodes[0]
        self.looks = 0
        self.raised = False
        self.leader = "n1"
        self._normal = self.node.answer
        monkeypatch.setattr(self.node, "answer", self.answer)

    def answer(self, request: Any) -> Message:  # Any request of the contracts.
        if isinstance(request, cluster_pb2.GetClusterStatusRequest):
            return self.status()
        if isinstance(request, worker_pb2.ListWorkersRequest):
            return worker_pb2.ListWorkersResponse(
                workers=[worker_pb2.Worker(worker="mail-1", slots=8, leased=3, queues=["mail"])]
            )
        if isinstance(request, alert_pb2.ListAlertsRequest) and self.raised:
            answer = alert_pb2.ListAlertsResponse()
            answer.alerts.add(name="calm")
            answer.alerts.add(name="lost").raised_time.GetCurrentTime()
            return answer
        return self._normal(request)

    def status(self) -> cluster_pb2.ClusterStatus:
        self.looks += 1
        seen = cluster_pb2.ClusterStatus(
            cluster_id="prod", node="n1", leader=self.leader, term=7, quorum=True, margin=1,
            commit_index=120, jobs=2, workers=1, revision=len(self.node.stage.machine.log),
        )  # fmt: skip
        for name, match in (("n1", 120), ("n2", 117)):
            seen.nodes.add(
                name=name, role=cluster_pb2.Node.ROLE_FOLLOWER, reachable=True, serving=True,
                match_index=match, client_address=self.node.address,
            )  # fmt: skip
        seen.problems.append("The clock of n2 is \x1b[2J off.")
        seen.tally.CopyFrom(tally(leased=1_000 * self.looks, late=[(10, 1_000 * self.looks)]))
        return seen


def tally(leased: int, late: Bands) -> cluster_pb2.Tally:
    made = cluster_pb2.Tally(scheduled_times=leased, leased=leased, ended=leased)
    for most, leases in late:
        band = made.lateness.add(leases=leases)
        if most is not None:
            band.most.FromMilliseconds(most)
    return made


@pytest.fixture
def play(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Play:
    return Play(stage, monkeypatch)


def test_one_look_shows_everything_for_people(cli: Cli, stage: Stage, play: Play) -> None:
    play.raised = True
    cli.ok("job", "create", "report", "--handler", "h", "--queue", "mail")
    cli.ok("job", "trigger", "report")

    text = cli.ok(*ONCE).stdout

    assert "prod: n1 leads" in text
    assert "Problem: The clock of n2 is \ufffd[2J off." in text
    assert "Alert: lost of" in text
    assert "calm" not in text
    lines = [line.split() for line in text.splitlines()]
    [n2] = [line for line in lines if line[:1] == ["n2"]]
    assert n2[:3] == ["n2", "follower", "serving"]
    assert n2[5] == "3"
    assert ["mail", "open", "1"] in [line[:3] for line in lines]
    assert ["mail-1", "pulling", "3/8", "mail"] in [line[:4] for line in lines]
    assert any("job created" in line for line in text.splitlines())
    assert "Not shown" not in text


def test_a_narrow_terminal_shows_what_happened(cli: Cli, play: Play) -> None:
    """The kind of an event was the first column to vanish."""
    cli.ok("job", "create", "report-" + "x" * 60, "--handler", "h")

    text = cli.ok(*ONCE, "--color", "always", NO_COLOR="1", COLUMNS="80").stdout

    [event] = [line for line in text.splitlines() if "job created" in line]
    assert max(map(len, text.splitlines())) <= 80
    assert event.startswith("20")


def test_one_look_is_a_document_for_programs(cli: Cli, play: Play) -> None:
    cli.ok("job", "create", "report", "--handler", "h")

    said = cli.json(*ONCE)

    assert said["cluster"]["leader"] == "n1"
    assert said["rates"]["leased"] == pytest.approx(1_000 / said["rates"]["seconds"], rel=0.2)
    assert said["lateness"] == {"p50Ms": 5.0, "p99Ms": 9.9}
    assert [event["kind"] for event in said["events"]] == ["EVENT_KIND_JOB_CREATED"]
    assert said["workers"][0]["worker"] == "mail-1"
    assert [queue["name"] for queue in said["queues"]] == ["default"]
    assert "missing" not in said


def test_what_cannot_be_read_is_left_out_and_named(cli: Cli, stage: Stage) -> None:
    """The stage knows of no workers and counts nothing."""
    said = cli.json(*ONCE)

    assert "rates" not in said
    assert "workers" not in said
    assert "does not play" in said["missing"]["workers"]
    assert said["queues"] == []


def test_without_a_leader_what_a_node_knows_itself_is_shown(cli: Cli, play: Play) -> None:
    play.leader = ""

    said = cli.json(*ONCE)

    assert said["cluster"]["node"] == "n1"
    assert "no leader is known" in said["missing"].values()
    assert "queues" not in said


def test_whoever_may_not_look_is_told_so(cli: Cli, stage: Stage) -> None:
    stage.nodes[0].faults.append(refusing("FORBIDDEN", "not you"))

    said = cli(*ONCE)

    assert said.exit_code == 5
    assert "not you" in said.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["top"], "raftsched top --once"),
        (["top", "-o", "json"], "raftsched top --once -o json"),
        (["top", "--once", "--every", "2m"], "--every 1s"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, words: list[str], why: str) -> None:
    said = cli(*words)

    assert said.exit_code == 2
    assert f"Try: {why}" in said.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_also_where_the_interpreter_swallows_what_it_raises(
    number: signal.Signals,
) -> None:
    looks = 0

    class SnapshotReader:
        def read(self) -> ClusterSnapshot:
            nonlocal looks
            looks += 1
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(number)
            return cast("ClusterSnapshot", None)

    before = signal.getsignal(number)
    with top._signals() as ended:
        seen = list(
            islice(top._snapshots(cast("Any", SnapshotReader()), 0.0, lambda _: "", ended), 5)
        )

    assert (looks, len(seen)) == (1, 1)
    assert signal.getsignal(number) is before


def test_rates_are_what_was_added_a_second() -> None:
    before = tally(1_000, [(1, 400), (2, 500), (None, 100)])
    now = tally(3_000, [(1, 400), (2, 2_400), (None, 200)])

    found = rates(before, now, 2.0)

    assert (found.leased, found.ended) == (1_000, 1_000)
    assert found.p50_ms == pytest.approx(1 + 1_000 / 1_900)


def test_the_first_look_of_a_leader_counts_from_nothing() -> None:
    assert rates(cluster_pb2.Tally(), tally(10, [(1, 10)]), 1.0).leased == 10


@each(
    ("bands", "share", "late"),
    [
        ([], 0.5, None),
        ([(1, 0), (None, 0)], 0.5, None),
        ([(1, 100)], 0.5, 0.5),
        ([(1, 50), (5, 50)], 0.5, 1.0),
        ([(1, 50), (5, 50)], 0.75, 3.0),
        ([(1, 1), (5, 0), (None, 99)], 0.99, 5.0),
    ],
)
def test_a_percentile_lies_evenly_in_its_band(bands: Bands, share: float, late: object) -> None:
    assert percentile(bands, share) == (late if late is None else pytest.approx(late))
