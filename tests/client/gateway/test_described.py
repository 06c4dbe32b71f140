"""Each call as its description allows it, and as it does not: no answer is one of a server at
fault, and none is another one than described."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from raftsched.client.testing import LocalCluster

from .test_pages import DOCUMENT
from .test_process import gateway

schemathesis = pytest.importorskip("schemathesis", reason="comes with .ci/requirements-http.txt")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

# These change the members or the leader, or make a token, after which nobody may do anything.
LEFT_OUT = {
    "AddNode", "CreateAccessToken", "DrainNode", "MoveNode", "RemoveNode", "SetStateTime",
    "TransferLeadership", "WatchEvents",
}  # fmt: skip
# A read that waits for a change that never comes ends with 504, rightly and late.
WAITING = ("read.minRevision", "wait")
EXAMPLES = 6


def described() -> dict[str, Any]:
    """What a test may ask for in numbers."""
    made = copy.deepcopy(DOCUMENT)
    for path, verbs in list(made["paths"].items()):
        for verb, operation in list(verbs.items()):
            operation["parameters"] = [
                one for one in operation["parameters"] if not one["name"].startswith(WAITING)
            ]
            if operation["operationId"] in LEFT_OUT:
                del made["paths"][path][verb]
    del made["components"]["schemas"]["ReadOptions"]["properties"]["minRevision"]
    return made


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with (
        LocalCluster(3) as cluster,
        gateway("--server", ",".join(cluster.endpoints)) as one,
    ):
        yield one.address


def cases() -> list[Any]:
    """Each call with what its description allows, and, if it takes anything, with what not."""
    schema = schemathesis.openapi.from_dict(described())
    found = []
    for one in schema.get_all_operations():
        operation = one.ok()
        raw = operation.definition.raw
        takes = raw["parameters"] or "requestBody" in raw
        modes = ["POSITIVE", "NEGATIVE"] if takes else ["POSITIVE"]
        found += [pytest.param(operation, mode, id=f"{operation.label}-{mode}") for mode in modes]
    return found


@pytest.mark.parametrize(("operation", "mode"), cases())
def test_answers_are_as_described(operation: Any, mode: str, address: str) -> None:
    checks = pytest.importorskip("schemathesis.checks").CHECKS.get_by_names(
        ["not_a_server_error", "status_code_conformance", "content_type_conformance",
         "response_headers_conformance", "response_schema_conformance"]
    )  # fmt: skip
    kind = schemathesis.GenerationMode[mode]

    @seed(1)
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(operation.as_strategy(generation_mode=kind))
    def ask(case: Any) -> None:
        answer = case.call(base_url=f"http://{address}", timeout=30)
        case.validate_response(answer, checks=checks)

    ask()
