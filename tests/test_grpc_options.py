"""gRPC passes over an option whose name it does not know, and does as it likes."""

from __future__ import annotations

from pathlib import Path

import grpc

from raftsched.client.sdk import links
from raftsched.cluster.api import forward, server

[PATH] = (Path(grpc.__file__).parent / "_cython").glob("cygrpc*.so")
LIBRARY = PATH.read_bytes()


def test_every_option_is_one_that_the_library_knows() -> None:
    asked = {name for options in (links.OPTIONS, forward.OPTIONS, server.OPTIONS)
             for name, _ in options}  # fmt: skip

    assert len(asked) > 10
    assert sorted(name for name in asked if not known(name)) == []
    assert not known("grpc.http2.min_recv_ping_interval_without_data_ms")


def known(name: str) -> bool:
    return name.encode() + b"\0" in LIBRARY
