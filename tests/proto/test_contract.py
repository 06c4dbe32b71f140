"""The table of the contract: what is read from the options of the .proto files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pool import Default

from raftsched.proto import contract
from raftsched.proto.contract import (
    Named,
    Next,
    Repeat,
    Role,
    Scope,
    allows,
    methods,
    named,
    reason,
    reasons,
)
from raftsched.proto.v1 import common_pb2, error_pb2, job_pb2, worker_pb2

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
    assert unknown == {"LEADER_CHANGED", "COMMIT_TIMEOUT", "OUTCOME_UNKNOWN"}


def test_a_reason_has_a_status_over_http() -> None:
    # Those that are not the one of their code, as google.rpc.Code names it.
    own = {
        "ETAG_MISMATCH": 412, "REQUEST_ID_REUSED": 422, "METHOD_NOT_ALLOWED": 405,
        "MEDIA_UNSUPPORTED": 415, "NOT_ACCEPTABLE": 406, "NAMESPACE_ELSEWHERE": 421,
    }  # fmt: skip
    found = {rules.word: rules.http_status for rules in reasons()}
    assert own.items() <= found.items()
    by_code = {
        "INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "ALREADY_EXISTS": 409, "ABORTED": 409,
        "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400, "RESOURCE_EXHAUSTED": 429,
        "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "UNAVAILABLE": 503,
        "DEADLINE_EXCEEDED": 504, "INTERNAL": 500,
    }  # fmt: skip
    others = [rules for rules in reasons() if rules.word not in own]
    assert [(one.word, by_code[one.code]) for one in others] == [
        (one.word, one.http_status) for one in others
    ]


def test_a_role_allows_what_those_below_it_may() -> None:
    admin, viewer = Role.ROLE_ADMIN, Role.ROLE_VIEWER
    ranked = (admin, Role.ROLE_EDITOR, Role.ROLE_WORKER, viewer)
    for place, role in enumerate(ranked):
        assert [allows(role, needs) for needs in ranked] == [at >= place for at in range(4)]
    assert not allows(Role.ROLE_UNSPECIFIED, viewer)
    assert not allows(admin, Role.ROLE_UNSPECIFIED)


def test_what_a_request_names_is_found_by_options() -> None:
    namespace, run, worker = Named.NAMED_NAMESPACE, Named.NAMED_RUN, Named.NAMED_WORKER
    job = job_pb2.CreateJobRequest(job=job_pb2.Job(namespace="team"))
    assert (named(job, namespace), named(job, run)) == (["team"], [])
    both = job_pb2.ImportJobsRequest(jobs=[job.job, job_pb2.Job()])
    assert named(both, namespace) == ["team", ""]
    hello = worker_pb2.WorkerHello(worker="w", namespaces=["a", "b"])
    assert (named(hello, namespace), named(hello, worker)) == (["a", "b"], ["w"])
    assert named(worker_pb2.LeaseRequest(), namespace) == [""]
    frame = worker_pb2.WorkRequest(
        hello=hello, results=[worker_pb2.Result(run="r1")],
        progress=[worker_pb2.ProgressReport(run="r2")],
        extensions=[worker_pb2.ExtendRequest(run="r3")],
    )  # fmt: skip
    assert sorted(named(frame, run)) == ["r1", "r2", "r3"]


@pytest.mark.parametrize("module", ["grpc", "raftsched.statemachine", "raftsched.client"])
def test_it_loads_nothing_beside_the_messages(module: str) -> None:
    script = (
        "import sys; from raftsched.proto import contract; contract.methods(); contract.reasons(); "
        f"assert not [name for name in sys.modules if name.split('.')[0] == {module!r} "
        f"or name.startswith({module!r})]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
