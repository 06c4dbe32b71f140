"""gRPC passes over options that it does not know without a word, so a slip in a name is silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from raftsched.client.sdk import links
from raftsched.cluster.api import forward, server

OPTIONS = {
    "server": server.OPTIONS,
    "onward": forward.OPTIONS,
    "client": links.OPTIONS,
}


@pytest.mark.parametrize("whose", OPTIONS)
def test_the_library_knows_every_option(whose: str) -> None:
    library = Path(cygrpc.__file__).read_bytes()
    assert b"grpc.max_allowed_incoming_connections\0" in library
    unknown = [name for name, _ in OPTIONS[whose] if name.encode() + b"\0" not in library]
    assert unknown == []


def test_clients_may_ping_as_often_as_they_do() -> None:
    said = dict(server.OPTIONS)
    least_ms = said["grpc.http2.min_ping_interval_without_data_ms"]
    for options in (forward.OPTIONS, links.OPTIONS):
        assert dict(options)["grpc.keepalive_time_ms"] >= 2 * least_ms
    assert said["grpc.keepalive_permit_without_calls"] == 1
