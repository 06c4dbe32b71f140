"""Calls against the real rules, with faults on the way; each with the blocking and the
asynchronous client."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from raftsched.client import AsyncClient, Client, Tls
from raftsched.client.errors import (
    AlreadyExists,
    CallerError,
    Closed,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from raftsched.proto.v1 import cluster_pb2, common_pb2, event_pb2, job_pb2

from ..statemachine.driver import job_of
from .stage import (
    BlackHole,
    Stage,
    breaking_off,
    dead_endpoint,
    losing_the_answer,
    refusing,
    silent,
)


class Asker:
    """One of the two clients, for tests that do not care which."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def ask(self, endpoints: str, request: Message, **options: Any) -> Any:  # noqa: ANN401
        made = {key: options.pop(key) for key in ("token", "namespace", "tls") if key in options}
        if self.kind == "sync":
            with Client(endpoints, **made) as client:
                return client.ask(request, **options)

        async def run() -> Any:  # noqa: ANN401
            async with AsyncClient(endpoints, **made) as client:
                return await client.ask(request, **options)

        return asyncio.run(run())

    def call(self, endpoints: str, request: Message, **options: Any) -> Any:  # noqa: ANN401
        return self.ask(endpoints, request, **options).message


@pytest.fixture(params=["sync", "async"])
def asker(request: pytest.FixtureRequest) -> Asker:
    return Asker(request.param)


def create(name: str = "report") -> job_pb2.CreateJobRequest:
    return job_pb2.CreateJobRequest(job=job_of(name, cron="0 * * * *"))


def test_a_call_is_answered_by_the_rules(stage: Stage, asker: Asker) -> None:
    job = asker.call(stage.endpoints, create())

    assert isinstance(job, job_pb2.Job)
    assert job.uid
    assert stage.machine.job("report") == job


def test_an_answer_says_what_its_metadata_said(stage: Stage, asker: Asker) -> None:
    asker.call(stage.endpoints, create())

    answer = asker.ask(stage.endpoints, job_pb2.GetJobRequest(job="report"), stale=True)

    assert answer.leader == stage.nodes[0].address
    assert answer.endpoint in stage.endpoints
    assert (answer.term, answer.revision, answer.age_ms) == (7, "1.0", 12)


def test_a_read_says_how_fresh_it_must_be(stage: Stage, asker: Asker) -> None:
    asker.call(stage.endpoints, create())
    request = job_pb2.GetJobRequest(job="report")

    asker.call(stage.endpoints, request, stale=True, min_revision="17.3")

    [read] = [
        one.read
        for node in stage.nodes
        for one in node.heard
        if isinstance(one, job_pb2.GetJobRequest)
    ]
    assert read.consistency == common_pb2.CONSISTENCY_STALE
    assert (read.min_revision.change, read.min_revision.position) == (17, 3)
    assert not request.HasField("read")
    with pytest.raises(ValueError, match="takes neither stale nor min_revision"):
        asker.call(stage.endpoints, create("b"), stale=True)


def test_a_refusal_has_its_reason_values_and_faults(stage: Stage, asker: Asker) -> None:
    wrong = job_of("Report", cron="61 * * * *")

    with pytest.raises(InvalidArgument) as caught:
        asker.call(stage.endpoints, job_pb2.CreateJobRequest(job=wrong))

    fields = {fault.field for fault in caught.value.faults}
    assert fields == {"name", "spec.schedules[0].cron.expression"}
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.request_id


def test_there_is_no_such_job(stage: Stage, asker: Asker) -> None:
    with pytest.raises(NotFound) as caught:
        asker.call(stage.endpoints, job_pb2.GetJobRequest(job="nobody"))

    assert caught.value.reason == "JOB_NOT_FOUND"
    assert caught.value.values["job"] == "nobody"
    assert len(stage.nodes[0].heard) == 1


def test_the_first_endpoint_is_dead(stage: Stage, asker: Asker) -> None:
    job = asker.call(f"{dead_endpoint()},{stage.endpoints}", create(), timeout=10)

    assert job.name == "report"


def test_the_first_endpoint_is_a_black_hole(
    stage: Stage, black_hole: BlackHole, asker: Asker
) -> None:
    job = asker.call(f"{black_hole.address},{stage.endpoints}", create(), timeout=20)

    assert job.name == "report"


def test_the_first_endpoint_does_not_lead_and_says_who_does(stage: Stage, asker: Asker) -> None:
    stage.leader = stage.nodes[2]

    answer = asker.ask(stage.endpoints, create(), forward=False)

    assert answer.endpoint == stage.nodes[2].address
    assert [len(node.heard) for node in stage.nodes] == [1, 0, 1]


def test_all_endpoints_are_dead(asker: Asker) -> None:
    dead = f"{dead_endpoint()},{dead_endpoint()}"

    with pytest.raises(Unavailable, match="It was not done") as caught:
        asker.call(dead, create(), timeout=1)

    assert dead.split(",")[0] in caught.value.message
    assert dead.split(",")[1] in caught.value.message


@pytest.mark.parametrize(
    "fault",
    [
        losing_the_answer(),
        refusing("LEADER_CHANGED"),
        refusing("COMMIT_TIMEOUT"),
        refusing("NO_QUORUM", retry_after_ms=20),
        refusing("DRAINING"),
        refusing("BACKLOG_FULL", retry_after_ms=20),
        refusing("CLOCK_SKEW"),
        refusing("STATE_DIVERGED"),
        breaking_off(),
    ],
)
def test_a_write_that_met_a_fault_is_done_once(stage: Stage, asker: Asker, fault: Any) -> None:  # noqa: ANN401
    stage.nodes[0].faults.append(fault)

    job = asker.call(stage.endpoints, create())

    heard = [request for node in stage.nodes for request in node.heard]
    assert len(heard) == 2
    assert heard[0] == heard[1]
    assert job == stage.machine.job("report")
    assert len(stage.machine.log) == 1


def test_the_deadline_ends_a_write_whose_outcome_nobody_knows(stage: Stage, asker: Asker) -> None:
    for node in stage.nodes:
        node.faults.extend([losing_the_answer()] * 50)

    with pytest.raises(OutcomeUnknown, match="It may have been done") as caught:
        asker.call(stage.endpoints, create(), timeout=0.5)

    for node in stage.nodes:
        node.faults.clear()
    request_id = caught.value.request_id
    again = job_pb2.CreateJobRequest(job=create().job, request_id=request_id)
    assert asker.call(stage.endpoints, again) == stage.machine.job("report")
    assert len(stage.machine.log) == 1


def test_a_read_that_nobody_answers_is_unavailable(stage: Stage, asker: Asker) -> None:
    for node in stage.nodes:
        node.faults.append(silent)

    with pytest.raises(Unavailable):
        asker.call(stage.endpoints, job_pb2.GetJobRequest(job="report"), timeout=0.3)


def test_what_cannot_come_again_before_the_deadline_is_not_waited_for(
    stage: Stage, asker: Asker
) -> None:
    stage.nodes[0].faults.append(refusing("RATE_LIMITED", retry_after_ms=60_000))

    with pytest.raises(RateLimited) as caught:
        asker.call(stage.endpoints, create(), timeout=10)

    assert caught.value.retry_after == 60.0


def test_a_request_over_the_message_limit_is_named_before_it_is_sent(
    stage: Stage, asker: Asker
) -> None:
    request = create()
    request.job.spec.payload.data = b"x" * 5_000_000

    with pytest.raises(InvalidArgument, match="at most 4,194,304") as caught:
        asker.call(stage.endpoints, request)

    assert caught.value.reason == "LIMIT_EXCEEDED"
    assert not stage.nodes[0].heard


def test_a_payload_over_its_limit_is_refused_by_the_rules(stage: Stage, asker: Asker) -> None:
    request = create()
    request.job.spec.payload.data = b"x" * 70_000

    with pytest.raises(InvalidArgument) as caught:
        asker.call(stage.endpoints, request)

    assert caught.value.reason == "PAYLOAD_TOO_LARGE"


def test_the_token_is_sent(stage: Stage, asker: Asker) -> None:
    stage.token = "secret"

    assert asker.call(stage.endpoints, create(), token="secret").name == "report"
    with pytest.raises(Unauthenticated):
        asker.call(stage.endpoints, create("other"), token="wrong")
    with pytest.raises(Unauthenticated):
        asker.call(stage.endpoints, create("other"))


def test_a_token_that_cannot_be_sent_is_refused_without_being_shown() -> None:
    for wrong in ("secret\n", "sécret"):
        with pytest.raises(ValueError, match="line's end") as caught:
            Client(token=wrong)
        assert "cret" not in str(caught.value)


def test_an_endpoint_can_be_named(stage: Stage, asker: Asker) -> None:
    request = cluster_pb2.GetClusterStatusRequest()

    for node in stage.nodes:
        assert asker.call(stage.endpoints, request, endpoint=node.address).node == node.address


def test_a_request_id_of_the_caller_is_kept(stage: Stage, asker: Asker) -> None:
    request = job_pb2.CreateJobRequest(job=create().job, request_id="mine")

    first = asker.call(stage.endpoints, request)
    again = asker.call(stage.endpoints, request)

    assert first == again
    with pytest.raises(AlreadyExists):
        asker.call(stage.endpoints, create())
    assert request.request_id == "mine"


def test_a_message_that_is_no_request_is_refused(stage: Stage, asker: Asker) -> None:
    with pytest.raises(TypeError, match=r"raftsched\.v1\.Job is not the request of any call"):
        asker.call(stage.endpoints, job_pb2.Job())


def test_a_connection_that_another_thread_let_go_is_made_again(stage: Stage) -> None:
    with Client(stage.endpoints) as client:
        client.call(create())
        client.connections._channels[stage.nodes[0].address].close()

        job = client.call(job_pb2.GetJobRequest(job="report"))

    assert job.name == "report"


def test_a_closed_client_says_so(stage: Stage) -> None:
    client = Client(stage.endpoints)
    client.close()

    with pytest.raises(Closed):
        client.call(create())


async def test_closing_ends_calls_that_are_under_way(stage: Stage) -> None:
    stage.nodes[0].faults.append(silent)
    client = AsyncClient(stage.endpoints)
    call = asyncio.create_task(client.call(create()))
    while not stage.nodes[0].heard:
        await asyncio.sleep(0)

    await client.close()

    with pytest.raises(Closed):
        await call


def test_a_stream_brings_what_happens(stage: Stage) -> None:
    with Client(stage.endpoints) as client:
        responses = client.stream(event_pb2.WatchEventsRequest())
        assert next(responses).events == []

        client.call(create())

        assert [event.job for event in next(responses).events] == ["report"]
        responses.close()


async def test_an_asynchronous_stream_brings_what_happens(stage: Stage) -> None:
    async with AsyncClient(stage.endpoints) as client:
        responses = client.stream(event_pb2.WatchEventsRequest())
        assert (await anext(responses)).events == []

        await client.call(create())

        assert [event.job for event in (await anext(responses)).events] == ["report"]
        await responses.aclose()


def test_a_call_that_the_node_does_not_know_is_named(stage: Stage, asker: Asker) -> None:
    stage.nodes[0].faults.append(breaking_off(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))

    with pytest.raises(CallerError, match="does not know the call CreateJob") as caught:
        asker.call(stage.endpoints, create())

    assert stage.nodes[0].address in caught.value.message


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    stage: Stage, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://{dead_endpoint()}")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)

    assert asker.call(stage.endpoints, create(), timeout=5).name == "report"


# Encrypted connections.


def certify(folder: Path, *names: str) -> None:
    """An authority and certificates for the names, valid for localhost addresses."""

    def openssl(*arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30
        )

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in names:
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1")
        openssl(
            "req", "-x509", *key, "-keyout", f"{name}.key", "-out", f"{name}.pem", *subject,
            "-CA", "ca.pem", "-CAkey", "ca.key",
        )  # fmt: skip


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_connections_are_encrypted_both_ways(tmp_path: Path, kind: str) -> None:
    certify(tmp_path, "node", "caller")
    read = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    credentials = grpc.ssl_server_credentials(
        [(read["node.key"], read["node.pem"])], read["ca.pem"], True
    )
    stage = Stage(1, credentials)
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "caller.pem", "caller.key"))
    mine = Tls(ca=ca, certificate=certificate, key=key)

    job = Asker(kind).call(stage.endpoints, create(), tls=mine)

    assert job.name == "report"
    for wrong in (None, Tls(ca=ca), Tls(ca=ca, certificate=certificate, key=key, server_name="x")):
        with pytest.raises(Unavailable, match="It was not done"):
            Asker(kind).call(stage.endpoints, job_pb2.GetJobRequest(job="a"), tls=wrong, timeout=1)
    stage.close()


def test_a_certificate_file_that_is_not_there_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nobody\.pem"):
        Client(tls=Tls(ca=tmp_path / "nobody.pem"))
    with pytest.raises(ValueError, match="both certificate and key"):
        Client(tls=Tls(certificate=tmp_path / "a.pem"))
