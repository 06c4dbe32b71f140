"""A client and a worker written from the contracts alone live through the end of a leader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from raftsched.client.testing import LocalCluster

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNS = 300


def stubs(folder: Path) -> Path:
    """What protoc makes of the contracts, for a program that has no other part of the product."""
    googleapis = metadata.distribution("googleapis-common-protos").locate_file(".")
    names = [f"raftsched/v1/{path.name}" for path in (ROOT / "proto" / "v1").glob("*.proto")]
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-Iraftsched/v1={ROOT}/proto/v1",
            f"-I{googleapis}", f"--python_out={folder}", f"--grpc_python_out={folder}", *names,
        ],
        check=True, timeout=60,
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_a_program_from_the_contracts_alone_loses_nothing_with_the_leader(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(stubs(tmp_path))}

    with LocalCluster(3) as cluster:
        program = subprocess.Popen(
            [
                sys.executable, str(HERE / "from_contract.py"), ",".join(cluster.endpoints),
                str(RUNS),
            ],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert program.stdin is not None
            assert program.stdout is not None
            assert program.stdout.readline() == "under way\n"
            cluster.kill_leader()
            last = program.communicate("go on\n", timeout=150)[0]
            assert program.returncode == 0
        finally:
            program.kill()
            program.wait()

    said = json.loads(last)
    seen = said.pop("worker")
    assert said == {
        "refused": "ETAG_MISMATCH", "runs": RUNS, "carried out": [1], "others": 0, "fired": [1],
        "succeeded": [1], "in order": True, "state": "RUN_STATE_SUCCEEDED", "ours": [],
    }  # fmt: skip
    # A second leader welcomed it, and nothing that it reported was refused.
    assert seen["welcome"] >= 2
    assert {one for one in seen if one.startswith("ack")} == {"ack"}
