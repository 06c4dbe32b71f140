"""A node that meets what must not happen: it says so in a line, and its process ends."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, RaftschedError, Tls
from raftsched.client.errors import Unauthenticated
from raftsched.cluster.local.nodes import NodeProcess

from .processes import alone, cluster, crowd, ends, stop, until

pytestmark = pytest.mark.slow


def broken(how: str, folder: Path) -> NodeProcess:
    """A node alone, with a fault put into its program."""
    node = alone(folder)
    program = f"{how}\nfrom raftsched.cluster.main import main\nmain()"
    node.program = (sys.executable, "-c", program, "node")
    return node


async def test_a_node_that_breaks_inside_ends_with_a_line(tmp_path: Path) -> None:
    bug = (
        "from raftsched.cluster.ops import node_watch as watch\n"
        "def boom(self, now): raise RuntimeError('a bug')\n"
        "watch.Watch._look = boom"
    )
    began = time.monotonic()

    code, lines = await ends(broken(bug, tmp_path))

    told = [json.loads(line) for line in lines if line[:1] == "{"]
    assert code == 1
    assert {line["why"] for line in told if line["level"] == "critical" and "why" in line} == {
        "a bug"
    }
    assert (told[-1]["event"], told[-1]["why"]) == ("stopped", "a bug")
    assert not any("Traceback" in line for line in lines)
    assert time.monotonic() - began < 15 * crowd()


async def test_a_stop_that_hangs_ends_after_three_seconds(tmp_path: Path) -> None:
    hang = (
        "import time, os, signal\n"
        "from raftsched.cluster.ops import lifecycle as life\n"
        "async def forever(self, *how): time.sleep(60)\n"
        "life.Life.stop = forever"
    )
    node = broken(hang, tmp_path)
    node.start()
    await until(lambda: "serves" in node.log.read_text(), 20)

    code, seconds = await stop(node)

    assert code == 3
    assert 2.5 < seconds < 4.5 * crowd()
    assert "not stopped within 3 s" in node.log.read_text()


async def test_a_loop_that_hangs_ends_three_seconds_after_the_signal(tmp_path: Path) -> None:
    hang = (
        "import sys\n"
        "from raftsched.cluster.ops import node_watch as watch\n"
        "def forever(self, now):\n"
        "    print('hangs', file=sys.stderr, flush=True)\n"
        "    while True: pass\n"
        "watch.Watch._look = forever"
    )
    node = broken(hang, tmp_path)
    node.start()
    await until(lambda: "hangs" in node.log.read_text().splitlines(), 20)

    code, seconds = await stop(node)

    assert code == 3
    assert seconds < 6 * crowd()
    assert "not finished: its loop did not hear of the signal" in node.log.read_text()


SLOW_STORE = (
    "import time\n"
    "from raftsched.cluster.node import applier as replica\n"
    "replica.Replica.close = lambda self: time.sleep(60)"
)
SLOW_INTERPRETER = "import atexit, time\natexit.register(time.sleep, 60)"


@pytest.mark.parametrize(
    ("how", "wanted", "words"),
    [
        (SLOW_STORE, 3, "not finished: the journal and the store"),
        # All is done, so there is nothing to complain of.
        (SLOW_INTERPRETER, 0, ""),
    ],
)
async def test_a_stop_over_its_time_says_what_was_not_finished(
    how: str, wanted: int, words: str, tmp_path: Path
) -> None:
    node = broken(how, tmp_path)
    node.start()
    await until(lambda: "serves" in node.log.read_text(), 20)

    code, seconds = await stop(node)

    assert code == wanted
    assert 2.5 < seconds < 4.5 * crowd()
    assert words in node.log.read_text()
    assert bool(words) == ("not stopped within 3 s" in node.log.read_text())


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    slow = (
        "import asyncio\n"
        "from raftsched.cluster.ops import lifecycle as life\n"
        "async def slow(self, *how): await asyncio.sleep(60)\n"
        "life.Life.stop = slow"
    )
    node = broken(slow, tmp_path)
    node.start()
    await until(lambda: "serves" in node.log.read_text(), 20)
    node.signal(signal.SIGTERM)
    await until(lambda: "stopping" in node.log.read_text(), 5)
    began = time.monotonic()

    node.signal(signal.SIGINT)

    await until(lambda: not node.alive, 5)
    assert node.code == 128 + signal.SIGINT
    assert time.monotonic() - began < crowd()


async def test_a_port_that_is_taken_at_the_last_moment_is_told_as_well(tmp_path: Path) -> None:
    late = "from raftsched.cluster.ops import listen as doors\ndoors.check = lambda config: None"
    node = broken(late, tmp_path)
    for address in (node.client, node.peer):
        host, _, port = address.partition(":")
        with socket.create_server((host, int(port))):
            code, lines = await ends(node)

        assert code == 17
        assert address in lines[-1]


async def test_a_damaged_journal_is_refused_with_its_code(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as running:
        async with AsyncClient(running.endpoints) as client:
            for number in range(5):
                await client.jobs.create(f"job-{number}", handler="nobody", payload=b"x" * 4000)
        node = running.nodes["n1"]
        await stop(node)
        for segment in (tmp_path / "n1" / "consensus" / "journal").glob("*.segment"):
            data = segment.read_bytes()
            segment.write_bytes(data.replace(b"x" * 100, b"y" * 100))

        node.start()
        await until(lambda: not node.alive, 20)

    assert node.code == 18
    assert "raftsched node: " in node.log.read_text().splitlines()[-1]


async def test_a_state_that_cannot_be_opened_is_set_aside_for_another(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as running, AsyncClient(running.endpoints) as client:
        await client.jobs.create("once", handler="note")
        node = running.nodes["n1"]
        await stop(node)
        for manifest in (tmp_path / "n1" / "state").rglob("MANIFEST-*"):
            manifest.write_bytes(b"nonsense" * 100)

        node.start()
        await until(lambda: client.jobs.get("once"), 20)

        assert (tmp_path / "n1" / "damaged").is_dir()


async def test_a_bug_while_it_starts_is_one_line_and_no_hang(tmp_path: Path) -> None:
    bug = (
        "from raftsched.cluster.api import server\n"
        "async def boom(self, *way): raise RuntimeError('a bug')\n"
        "server.Server.start = boom"
    )

    code, lines = await ends(broken(bug, tmp_path))

    assert code == 1
    told = json.loads(lines[-1])
    assert told["level"] == "error"
    assert "RuntimeError: a bug" in told["exception"]


def certificates(folder: Path, names: list[str]) -> None:
    """An authority, where there is none yet, and a certificate for each name at this machine."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    if not (folder / "ca.pem").exists():
        openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in names:
        alternatives = f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1"
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}", "-addext", alternatives)  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "1", "-copy_extensions", "copy",
                "-out", f"{name}.pem")  # fmt: skip


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl to make certificates")
async def test_with_tls_on_every_door_calls_are_passed_on_and_strangers_are_not_heard(
    tmp_path: Path,
) -> None:
    certificates(tmp_path, ["n1", "n2", "n3", "me"])
    made = cluster_with_tls(tmp_path)
    async with cluster(tmp_path, arguments=made, scheme="https") as running:
        mine = Tls(ca=str(tmp_path / "ca.pem"), certificate=str(tmp_path / "me.pem"),
                   key=str(tmp_path / "me.key"))  # fmt: skip
        leader = await running.leader()
        follower = next(name for name in running.nodes if name != leader)
        async with AsyncClient(running.address(follower), tls=mine, timeout=10) as client:
            await client.jobs.create("safe", handler="nobody")
        async with AsyncClient(running.address(leader), timeout=2) as stranger:
            with pytest.raises(RaftschedError):
                await stranger.jobs.get("safe")
        nameless = Tls(ca=str(tmp_path / "ca.pem"))
        async with AsyncClient(running.address(leader), tls=nameless, timeout=2) as stranger:
            with pytest.raises(RaftschedError):
                await stranger.jobs.get("safe")


async def test_that_there_is_no_token_is_said_only_where_it_is_true(tmp_path: Path) -> None:
    untold = "no access token was made yet"
    async with cluster(tmp_path, 1, arguments={"n1": ("--tokens",)}) as running:
        [node] = running.nodes.values()
        await until(lambda: untold in node.log.read_text(), 20)
        secret = (tmp_path / "n1" / "bootstrap-secret").read_text().strip()
        async with AsyncClient(running.address("n1"), token=secret, timeout=10) as first:
            made = await first.access.create_token("root", "admin", namespace="")

        node.kill()
        node.log.write_text("")
        node.start()
        async with AsyncClient(running.address("n1"), token=made.secret, timeout=20) as client:
            await client.jobs.create("safe", handler="nobody")
        await stop(node)

        assert untold not in node.log.read_text()


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl to make certificates")
async def test_with_tokens_clients_need_no_certificate_and_calls_are_passed_on(
    tmp_path: Path,
) -> None:
    certificates(tmp_path, ["n1", "n2", "n3"])
    flags = {name: (*words[:-2], "--tokens") for name, words in cluster_with_tls(tmp_path).items()}
    tls = Tls(ca=str(tmp_path / "ca.pem"))
    async with cluster(tmp_path, arguments=flags, scheme="https") as running:
        leader = await running.leader()
        follower = next(name for name in running.nodes if name != leader)
        async with AsyncClient(running.address(follower), tls=tls, timeout=2) as stranger:
            with pytest.raises(Unauthenticated) as caught:
                await stranger.access.create_token("root", "admin", namespace="")
        assert caught.value.reason == "NOT_BOOTSTRAPPED"
        files = sorted(tmp_path.glob("*/bootstrap-secret"))
        assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
        # Any node's secret on any node, of several at once one.
        secrets = [file.read_text().strip() for file in files]
        asked = []
        for number, (name, secret) in enumerate(zip(running.nodes, secrets, strict=True)):
            first = AsyncClient(running.address(name), tls=tls, token=secret, timeout=10)
            asked.append((first, first.access.create_token(f"root{number}", "admin", namespace="")))
        answers = await asyncio.gather(*(call for _, call in asked), return_exceptions=True)
        for first, _ in asked:
            await first.close()
        [made] = [answer for answer in answers if not isinstance(answer, BaseException)]
        until = asyncio.get_running_loop().time() + 30
        while [file for file in files if file.exists()]:
            assert asyncio.get_running_loop().time() < until, "the secret is still there"
            await asyncio.sleep(0.05)
        async with AsyncClient(
            running.address(follower), tls=tls, token=made.secret, timeout=10
        ) as client:
            await client.jobs.create("safe", handler="nobody")
        async with AsyncClient(running.address(follower), tls=tls, timeout=2) as stranger:
            with pytest.raises(Unauthenticated):
                await stranger.jobs.get("safe")


def cluster_with_tls(folder: Path) -> dict[str, tuple[str, ...]]:
    """The flags of each node for its certificate, on both doors; the last two ask clients for
    theirs."""
    return {
        name: (
            "--tls-peer-certificate-file", f"{folder}/{name}.pem", "--tls-peer-key-file",
            f"{folder}/{name}.key", "--tls-peer-ca-file", f"{folder}/ca.pem",
            "--tls-server-certificate-file", f"{folder}/{name}.pem", "--tls-server-key-file",
            f"{folder}/{name}.key", "--tls-server-ca-file", f"{folder}/ca.pem",
        )
        for name in ("n1", "n2", "n3")
    }  # fmt: skip
