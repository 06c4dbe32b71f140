"""Three nodes, a gateway and a worker under the units' own commands, with TLS and tokens.

What systemd would do is done here: the command, the variables, a socket that hears READY, the signs
of life and STOPPING. Certificates and configurations are those that `raftsched tls init` makes.
"""

from __future__ import annotations

import http.server
import re
import shlex
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, Tls
from raftsched.cluster.local.process import PROGRAM_OF_CLIENT, Process, environment, stop_all
from raftsched.proto.v1.job_pb2 import HttpAction

from ..e2e.processes import until
from .tools import DEPLOY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NODES = {"n1": "127.18.1.1", "n2": "127.18.1.2", "n3": "127.18.1.3"}
GATEWAY = "127.18.1.4"
UNITS = DEPLOY / "systemd"
PROGRAM = "/opt/raftsched/bin/raftsched"
WATCHDOG_US = 1_500_000
# As MemoryDenyWriteExecute and NoNewPrivileges have it, where the kernel can (Linux 6.3).
SHUT = """
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
prctl(65, 1, 0, 0, 0)
prctl(38, 1, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
SMALL = {"RAFTSCHED_NODE_SEGMENT_MB": "8", "RAFTSCHED_NODE_CACHE_MB": "16"}


class Unit:
    """A process as its unit starts it, and what systemd hears of it."""

    def __init__(self, folder: Path, name: str, unit: str, given: dict[str, str]) -> None:
        [line] = re.findall(r"^ExecStart=(.*)$", (UNITS / unit).read_text(), re.MULTILINE)
        program, *words = shlex.split(line)
        assert program == PROGRAM
        whole = []
        for word in words:
            # $NAME as systemd has it: words of its own.
            whole += shlex.split(given[word[1:]]) if word[0] == "$" else [word]
        place = str(folder / name)
        self.heard: list[bytes] = []
        # The path of a socket has a hundred characters at most, and a checkout may lie deep.
        self._near = tempfile.TemporaryDirectory(prefix="raftsched-")
        notify = f"{self._near.name}/notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(notify)
        self._socket.setblocking(False)
        self.process = Process(
            name, [word.replace("/etc/raftsched", place) for word in whole], folder / f"{name}.log",
            given | {"NOTIFY_SOCKET": notify, "WATCHDOG_USEC": str(WATCHDOG_US)},
            PROGRAM_OF_CLIENT, wrap=(sys.executable, "-c", SHUT),
        )  # fmt: skip

    def has_said(self, word: bytes) -> bool:
        try:
            while True:
                self.heard.append(self._socket.recv(1_000))
        except BlockingIOError:
            return word in self.heard

    def close(self) -> None:
        self._socket.close()
        self._near.cleanup()


def file_of_variables(name: str, **changed: str) -> dict[str, str]:
    """An example of an EnvironmentFile, with what is of this test in its place."""
    text = (UNITS / name).read_text()
    found = dict(line.split("=", 1) for line in text.splitlines() if line[:1] not in ("", "#"))
    assert changed.keys() <= found.keys()
    return found | changed


@contextmanager
def target() -> Iterator[tuple[str, list[str]]]:
    """Who is called by a job."""
    paths: list[str] = []

    class Called(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Called) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/called", paths
        finally:
            server.shutdown()
            thread.join()


def typed(*words: str) -> str:
    done = subprocess.run(
        [*PROGRAM_OF_CLIENT, *words], capture_output=True, text=True, check=False, timeout=120,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def prepared(folder: Path) -> None:
    """One command makes what three machines need; here each machine is a folder."""
    hosts = [word for name, host in NODES.items() for word in ("--node", f"{name}={host}")]
    typed("tls", "init", str(folder), *hosts, "--other", f"gateway={GATEWAY}")
    for name, host in NODES.items():
        file = folder / name / "node.toml"
        text = file.read_text().replace("/etc/raftsched", str(folder / name))
        text = text.replace("/var/lib/raftsched", str(folder / name))
        file.write_text(text.replace("127.0.0.1:7420", f"{host}:7420"))


async def test_the_units_commands_are_a_cluster_that_carries_out_a_job(tmp_path: Path) -> None:
    prepared(tmp_path)
    ca, endpoints = str(tmp_path / "ca.pem"), ",".join(f"{host}:7400" for host in NODES.values())
    # The node's own gateways would share one address of this machine.
    variables = SMALL | {"RAFTSCHED_NODE_GATEWAY_LISTEN": ""}
    units = [Unit(tmp_path, name, "raftsched-node.service", variables) for name in NODES]
    place = tmp_path / "gateway"
    try:
        for unit in units:
            unit.process.start()
        await until(lambda: all(unit.has_said(b"READY=1") for unit in units), 30)
        lock = ("--endpoints", endpoints, "--ca-file", ca)
        secret = str(tmp_path / "n1" / "node" / "bootstrap-secret")
        await until(lambda: Path(secret).exists(), 10)
        root = tmp_path / "root.token"
        root.write_text(typed("token", "bootstrap", "--secret-file", secret, *lock))
        worker = tmp_path / "worker.token"
        worker.write_text(
            typed("token", "create", "w", "--role", "worker", *lock, "--token-file", str(root))
        )
        common = {"RAFTSCHED_ENDPOINTS": endpoints, "RAFTSCHED_CA_FILE": ca}
        units.append(Unit(tmp_path, "gateway", "raftsched-gateway.service", file_of_variables(
            "gateway.env", **common, RAFTSCHED_GATEWAY_LISTEN=f"{GATEWAY}:7480",
            RAFTSCHED_GATEWAY_TLS_CERT_FILE=str(place / "node.pem"),
            RAFTSCHED_GATEWAY_TLS_KEY_FILE=str(place / "node.key"),
        )))  # fmt: skip
        units.append(Unit(tmp_path, "worker", "raftsched-worker@.service", file_of_variables(
            "worker-http.env", **common, RAFTSCHED_TOKEN_FILE=str(worker),
            WORKER="--executor http --allow-address loopback",
        )))  # fmt: skip
        for unit in units[3:]:
            unit.process.start()
        await until(lambda: all(unit.has_said(b"READY=1") for unit in units), 30)
        await until(lambda: all(unit.has_said(b"WATCHDOG=1") for unit in units), 30)

        with target() as (url, called):
            tls = Tls(ca)
            async with AsyncClient(endpoints, tls=tls, token=root.read_text().strip()) as client:
                await client.jobs.create("call", http=HttpAction(url=url))
                run = await (await client.jobs.trigger("call")).wait(60)
            asking = urllib.request.Request(
                f"https://{GATEWAY}:7480/v1/jobs/call",
                headers={"authorization": f"Bearer {root.read_text().strip()}"},
            )
            trust = ssl.create_default_context(cafile=ca)
            with urllib.request.urlopen(asking, timeout=20, context=trust) as answer:
                seen = answer.status
        killed = stop_all([unit.process for unit in reversed(units)])
    finally:
        stop_all([unit.process for unit in units])
        stopping = [unit.has_said(b"STOPPING=1") for unit in units]
        status = [word for word in units[0].heard if word.startswith(b"STATUS=")]
        for unit in units:
            unit.close()

    assert run.state == "SUCCEEDED", run.message
    assert called == ["/called"]
    assert seen == 200
    assert killed == []
    assert all(stopping)
    assert [unit.process.code for unit in units] == [0] * 5
    assert any(b"leads" in word or b"follows" in word for word in status)
