"""The table of the contract: what is read from the options of the .proto files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pool import Default

from raftsched.proto import contract
from raftsched.proto.contract import Next, Repeat, Role, Scope, methods, reason, reasons
from raftsched.proto.v1 import common_pb2, error_pb2

V1 = Path(common_pb2.__file__).parent


def test_every_file_with_a_service_is_read() -> None:
    methods()
    for path in V1.glob("*.proto"):
        file = Default().FindFileByName(f"raftsched/v1/{path.name}")
        assert bool(file.services_by_name) == (path.stem in contract.FILES), path.name


def test_a_call_is_read_as_its_file_says() -> None:
    found = {method.name: method for method in methods()}
    work = found["WorkerService/Work"]
    assert (work.path, work.verb) == ("/raftsched.v1.WorkerService/Work", "Work")
    assert (work.needs, work.scope) == (Role.ROLE_WORKER, Scope.SCOPE_DEFAULT)
    assert (work.repeat, work.harmless) == (Repeat.REPEAT_BY_TOKEN, False)
    assert (work.streams_in, work.streams_out, work.heartbeat) == (True, True, True)
    assert (work.request_bytes, work.longest_s) == (4 << 20, contract.LONGEST_S)
    verify = found["ClusterService/VerifyState"]
    assert (verify.local, verify.slow, verify.longest_s) == (True, True, 3_600.0)
    get = found["JobService/GetJob"]
    assert (get.harmless, get.reads, get.request_bytes) == (True, True, contract.REQUEST_BYTES)


def test_two_calls_never_share_a_verb() -> None:
    assert len({method.verb for method in methods()}) == len(methods())


def test_a_reason_is_read_as_its_file_says() -> None:
    assert len(reasons()) == len(error_pb2.ErrorReason.keys()) - 1
    full = reason("DISK_FULL")
    assert full is not None
    assert (full.number, full.code) == (error_pb2.ERROR_REASON_DISK_FULL, "RESOURCE_EXHAUSTED")
    assert (full.next, full.retry_ms) == (Next.NEXT_LATER, 2_000)
    assert reason("OF_A_LATER_VERSION") is None
    # A caller must never take for undone what may have been done.
    unknown = {rules.word for rules in reasons() if rules.next == Next.NEXT_REPEAT}
    assert unknown == {"LEADER_CHANGED", "COMMIT_TIMEOUT"}


@pytest.mark.parametrize("module", ["grpc", "raftsched.statemachine", "raftsched.client"])
def test_it_loads_nothing_beside_the_messages(module: str) -> None:
    script = (
        "import sys; from raftsched.proto import contract; contract.methods(); contract.reasons(); "
        f"assert not [name for name in sys.modules if name.split('.')[0] == {module!r} "
        f"or name.startswith({module!r})]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
