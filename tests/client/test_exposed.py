"""An access token leaves this machine encrypted, or because somebody said so."""

from __future__ import annotations

import pytest

from raftsched.client import AsyncClient, Client, Tls, Worker
from raftsched.client.sdk.course import Course
from raftsched.client.sdk.endpoints import Endpoints, is_loopback
from raftsched.client.sdk.links import ClientLinks, Exposed
from raftsched.client.sdk.refusals import FailedTry
from raftsched.proto.contract import method_of
from raftsched.proto.v1 import job_pb2

from ..rows import each

AWAY = "127.0.0.1:7400,10.0.0.9:7400"


@each("kind", [Client, AsyncClient])
@each("address", ["10.0.0.9", "node-1:7400", AWAY, "127.evil.example:1"])
def test_a_token_is_not_sent_in_plain_text(kind: type[Client], address: str) -> None:
    with pytest.raises(Exposed, match=r"without encryption.*tls=.*insecure=True"):
        kind(address, token="secret")
    kind(address)
    kind(address, token="secret", insecure=True)
    kind(address, token="secret", tls=Tls())
    kind("127.0.0.1,localhost:7,[::1]:8", token="secret")


def test_nor_to_a_single_node_that_is_named_later() -> None:
    client = Client("127.0.0.1:7400", token="secret")
    with pytest.raises(Exposed):
        client.call(job_pb2.GetJobRequest(job="a"), endpoint="10.0.0.9:7400", timeout=0.1)


def test_nor_to_a_leader_that_somebody_names() -> None:
    known = Endpoints(("127.0.0.1:1",), is_loopback)
    known.learn("10.0.0.9:7400")
    known.answered("127.0.0.1:1", "10.0.0.9:7400")
    assert known.pick(0.0, ()) == "127.0.0.1:1"
    known.learn("127.0.0.1:2")
    assert known.pick(0.0, ()) == "127.0.0.1:2"


def test_nor_to_a_leader_that_a_refusal_names() -> None:
    known = Endpoints(("127.0.0.1:1",), is_loopback)
    request = job_pb2.GetJobRequest(job="a")
    course = Course(method_of(type(request)), request, known, started=0.0, timeout=30.0)
    course.next_try(0.0)
    course.failed(FailedTry("UNAVAILABLE", "no", "NOT_LEADER", leader="10.0.0.9:7400"), 0.0)
    assert course.next_try(0.0).address == "127.0.0.1:1"


def test_nor_is_the_token_of_a_single_call() -> None:
    request = job_pb2.GetJobRequest(job="a")
    client = Client("10.0.0.9:7400")
    with pytest.raises(Exposed):
        client.call(request, token="secret", timeout=0.1)
    links = ClientLinks("127.0.0.1:1", namespace="", timeout=1.0, token=None, tls=None)
    links.endpoints.learn("10.0.0.9:7400")
    course = links.begin(request, {"token": "secret"})
    assert course.next_try(0.0).address == "127.0.0.1:1"


def test_nor_by_a_worker() -> None:
    with pytest.raises(Exposed):
        Worker("10.0.0.9:7400", token="secret")
    Worker("10.0.0.9:7400", token="secret", insecure=True)
