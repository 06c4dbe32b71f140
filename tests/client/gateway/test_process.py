"""The gateway as people start it: a process before real nodes, or before none."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from queue import Queue
from time import monotonic
from typing import Any

import pytest

from raftsched.client.testing import LocalCluster
from raftsched.client.testing.cluster import wait_until

HOOK = "https://example.com"
NOBODY = "127.0.0.1:1"
START = "from raftsched.client.cli import main; main()"


@dataclass(slots=True)
class Process:
    """One gateway."""

    process: subprocess.Popen[bytes]
    address: str

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        line = HTTPConnection(self.address, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            headers = {} if body is None else {"Content-Type": "application/json"}
            line.request(method, path, data, headers)
            answer = line.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            line.close()


@contextmanager
def gateway(*words: str) -> Iterator[Process]:
    kept = {key: text for key, text in os.environ.items() if not key.startswith("RAFTSCHED_")}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", START, "gateway", "--listen", "127.0.0.1:0", *words],
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=kept | {"RAFTSCHED_CONFIG": os.devnull},
        )
        try:
            wait_until(lambda: os.pread(log.fileno(), 1 << 16, 0).endswith(b"\n"), 60)
            first = json.loads(os.pread(log.fileno(), 1 << 16, 0).splitlines()[0])
            assert first["message"] == "listening", first
            yield Process(process, first["url"].removeprefix("http://"))
        finally:
            process.kill()
            process.wait(10)


@pytest.mark.slow
def test_it_starts_before_the_cluster_and_stops_when_asked() -> None:
    with gateway("--server", NOBODY, "--timeout", "300ms") as one:
        status, body = one.ask("GET", "/v1/jobs")
        assert (status, body["error"]["details"][0]["reason"]) == (503, "CLUSTER_UNREACHABLE")
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(10) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "0.0.0.0:0"], "can be reached from other machines"),
        (["--listen", "here"], "it is not HOST:PORT"),
        (["--server", "10.0.0.9:7400"], "sent to other machines without encryption"),
        (["--server", "a/b"], "cannot use the endpoints"),
        (["--tls-cert-file", "x.pem"], "are two files"),
        (["--tls-cert-file", "x.pem", "--tls-key-file", "x.key"], "no certificate and its key"),
        (["--listen", "203.0.113.9:1", "--insecure-http"], "cannot listen on 203.0.113.9:1"),
    ],
)
def test_what_cannot_be_served_is_said(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from raftsched.client.cli import main

    monkeypatch.setenv("RAFTSCHED_CONFIG", os.devnull)
    result = CliRunner().invoke(main, ["gateway", *words])
    assert result.exit_code in (1, 2, 5)
    assert said in " ".join(result.stderr.split())
    assert "Try:" in result.stderr


README = Path(__file__).parents[3] / "README.md"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the README calls with curl")
def test_the_call_in_the_readme_is_answered_as_it_says() -> None:
    line, told = re.findall(r"^\$ (curl .*)\n(.*)$", README.read_text(), re.MULTILINE)[0]
    with LocalCluster(1) as cluster, gateway("--server", ",".join(cluster.endpoints)) as one:
        words = shlex.split(line.replace("127.0.0.1:7430", one.address))
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    answer, expected = json.loads(done.stdout), json.loads(told)
    assert answer.keys() == expected.keys()
    assert answer["job_id"] == expected["job_id"]
    assert answer["next_fire_time"][10:] == expected["next_fire_time"][10:]


class Watch:
    """A browser's stream: ids and jobs of what was created, in order."""

    def __init__(self, address: str, last: str = "") -> None:
        path = "/v1/events:watch?filter=kind%3DJOB_CREATED"
        request = urllib.request.Request(f"http://{address}{path}")
        request.add_header("Accept", "text/event-stream")
        if last:
            request.add_header("Last-Event-ID", last)
        self._answer: HTTPResponse = urllib.request.urlopen(request, timeout=60)
        self.found: Queue[tuple[str, str]] = Queue()
        self.standing = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        place = ""
        for raw in self._answer:
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name == "id":
                place = value
                self.standing.set()
            elif name == "data":
                self.found.put((place, json.loads(value)["job"]))

    def take(self, count: int) -> list[tuple[str, str]]:
        return [self.found.get(timeout=60) for _ in range(count)]


@pytest.mark.slow
def test_a_stream_outlives_the_leader_and_goes_on_at_another_gateway() -> None:
    with (
        LocalCluster(3) as cluster,
        gateway("--server", ",".join(cluster.endpoints)) as one,
        gateway("--server", ",".join(reversed(cluster.endpoints))) as other,
    ):
        watch = Watch(one.address)
        assert watch.standing.wait(30)
        names = [f"job-{number}" for number in range(30)]
        for number, name in enumerate(names):
            if number == 10:
                killed = cluster.kill_leader()
            if number == 20:
                cluster.revive(killed)
                cluster.kill_leader()
            body = {"name": name, "callback_url": HOOK}
            began = monotonic()
            assert one.ask("POST", "/api/v1/jobs", body)[0] == 201
            assert monotonic() - began < 30
        seen = watch.take(len(names))
        assert [job for _, job in seen] == names
        # Whoever was cut off in the middle goes on at the other one.
        again = Watch(other.address, last=seen[14][0])
        assert [job for _, job in again.take(15)] == names[15:]
