"""The image's recipe: clean, small in what it may, and with a health check that tells the truth."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from .tools import DEPLOY, ROOT, run, tool

IMAGE = DEPLOY / "image"
RECIPE = (IMAGE / "Dockerfile").read_text()


def test_the_recipe_is_clean() -> None:
    found = run(tool("hadolint"), IMAGE / "Dockerfile")

    assert (found.returncode, found.stdout) == (0, "")


def test_a_fault_is_found() -> None:
    planted = subprocess.run(
        [tool("hadolint"), "-"], input="FROM debian\nRUN cd / && sudo true\n", text=True,
        capture_output=True, check=False,
    )  # fmt: skip

    assert planted.returncode == 1


def test_what_runs_is_not_root_and_has_no_compiler() -> None:
    last = RECIPE.split("\nFROM ")[-1]

    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", last, re.MULTILINE)
    assert "apt-get" not in RECIPE
    assert "pip install" not in last


def test_what_it_copies_is_there_and_let_through() -> None:
    ignored = (IMAGE / "Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", RECIPE, re.MULTILINE)
        for word in line.split()[:-1]
    }

    assert ignored[0] == "*"
    assert [name for name in sorted(copied) if not (ROOT / name).exists()] == []
    assert {name.rpartition("/")[0] if "deploy/" in name else name for name in copied} == let_in


def test_what_it_installs_is_locked() -> None:
    lock = (IMAGE / "requirements.txt").read_text()

    assert "://" not in lock
    assert 0 < lock.count("==") <= lock.count("--hash=sha256:")
    for name in ("grpcio", "pysyncobj", "rocksdict", "aiohttp", "uvloop"):
        assert re.search(rf"^{name}==", lock, re.MULTILINE), name


class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def served() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("http://127.0.0.1:{}/healthz", 0), ("http://127.0.0.1:{}/readyz", 1),
        ("tcp://127.0.0.1:{}", 0), ("tcp://127.0.0.1:1", 1), ("https://127.0.0.1:1/healthz", 1),
    ],
)  # fmt: skip
def test_the_health_check_says_what_is(address: str, code: int, served: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(IMAGE / "health.py")], check=False, capture_output=True,
        env={"RAFTSCHED_HEALTH": address.format(served)}, timeout=60,
    )  # fmt: skip

    assert ended.returncode == code, ended.stderr
