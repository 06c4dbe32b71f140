"""A secret on a cluster of processes: the target gets it, and no disk has it as plain text."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from raftsched.client import AsyncClient, Worker
from raftsched.client.executors import HttpExecutor
from raftsched.cluster.node.secret_keys import keys_in, new_key
from raftsched.proto.v1 import job_pb2, run_pb2

from ..client.gateway.test_process import gateway
from .processes import READY_S, Cluster, cluster, until
from .test_backup import is_whole, lose, offline
from .test_command import Shell

pytestmark = pytest.mark.slow
WORD = "XplainX-3f1c-secret"
WAIT_S = 60


class Target(http.server.BaseHTTPRequestHandler):
    """Keeps the headers of who calls, and says them back."""

    seen: list[str]

    def do_POST(self) -> None:
        self.seen.append(self.headers["Authorization"])
        body = f"you sent {self.headers['Authorization']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not to the terminal."""


@contextmanager
def target() -> Iterator[tuple[str, list[str]]]:
    kind = type("Seeing", (Target,), {"seen": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", kind.seen  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@asynccontextmanager
async def serving(endpoints: str) -> AsyncIterator[None]:
    worker = Worker(endpoints, executors=[HttpExecutor(allow=["loopback"])], grace=2)
    task = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.stop(now=True)
        await asyncio.wait([task], timeout=10)


def write(file: Path, *keys: str) -> None:
    """Keys with the newest first, for the eyes of their owner."""
    new = file.with_name("new-keys")
    new.write_text("".join(f"{key}\n" for key in keys))
    new.chmod(0o600)
    new.replace(file)


def settings(folder: Path) -> dict[str, tuple[str, ...]]:
    return {
        f"n{number}": ("--secrets-key-file", str(folder / f"keys{number}")) for number in (1, 2, 3)
    }


def places_of(folder: Path, word: str) -> list[str]:
    """The files below a folder that hold a word."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 20
    return [str(file) for file in files if word.encode() in file.read_bytes()]


async def create(client: AsyncClient, url: str) -> None:
    action = job_pb2.Action(http=job_pb2.HttpAction(url=url))
    action.http.headers["Authorization"] = "Bearer secret://api-key"
    overlap = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    retry = job_pb2.RetryPolicy(max_attempts=1)
    spec = job_pb2.JobSpec(action=action, overlap=overlap, retry=retry)
    job = job_pb2.Job(name="call", spec=spec)
    made = await client.call(job_pb2.CreateJobRequest(job=job))
    assert isinstance(made, job_pb2.Job)
    assert not made.status.warnings


async def run_of(client: AsyncClient) -> run_pb2.Run:
    """A run of the job, once it has ended."""
    started = await client.call(job_pb2.TriggerJobRequest(job="call"))
    assert isinstance(started, run_pb2.Run)
    request = run_pb2.WaitRunRequest(run=started.id)
    async with asyncio.timeout(WAIT_S):
        while True:
            run = await client.call(request, timeout=WAIT_S)
            assert isinstance(run, run_pb2.Run)
            if run.HasField("end_time"):
                return run


async def test_a_target_gets_a_secret_that_no_disk_has(tmp_path: Path) -> None:
    file, old, new = tmp_path / "nightly.tar", new_key(), new_key()
    for number in (1, 2, 3):
        write(tmp_path / f"keys{number}", old)
    with target() as (url, seen):
        async with cluster(tmp_path, arguments=settings(tmp_path)) as running:
            async with (
                serving(running.endpoints),
                AsyncClient(running.endpoints, timeout=20) as client,
            ):
                shell = Shell(running, tmp_path)
                await put_over_http(running)
                await create(client, url)
                run = await run_of(client)
                assert seen == [f"Bearer {WORD}"]
                assert run.state == run_pb2.RUN_STATE_SUCCEEDED
                assert run.result.data == b"you sent Bearer (hidden)"
                await rekeyed(shell, tmp_path, old, new)
                await run_of(client)
                await shell("cluster", "backup", str(file))
                said = "\n".join([
                    await shell("secret", "list", "-o", "yaml"),
                    await shell("job", "get", "call", "-o", "yaml"),
                    await shell("job", "export"),
                    await shell("audit-log", "-o", "yaml"),
                    await shell("run", "get", run.id, "-o", "yaml"),
                    await shell("job", "explain", "call"),
                    await shell("doctor"),
                ])  # fmt: skip
            await asyncio.to_thread(running.processes.stop)
            assert seen == [f"Bearer {WORD}"] * 2
            assert WORD not in said
            assert "secret://api-key" in said
            assert "ResolveSecrets" in said
            assert places_of(tmp_path, WORD) == []
            # Where it is, it would be found.
            assert any("journal" in one or "consensus" in one
                       for one in places_of(tmp_path, "api-key"))  # fmt: skip
            assert old not in said
            await restored(running, tmp_path, file, new)


async def put_over_http(running: Cluster) -> None:
    body = {"secret": {"labels": {"team": "a"}}, "value": WORD}
    with gateway("--server", running.endpoints) as door:
        status, answer = await asyncio.to_thread(door.ask, "PUT", "/v1/secrets/api-key", body)
        shown = await asyncio.to_thread(door.ask, "GET", "/v1/secrets/api-key")
        wrong = await asyncio.to_thread(
            door.ask, "PUT", "/v1/secrets/api-key", {"value": [WORD], "secret": {}}
        )
    assert (status, answer["name"]) == (200, "api-key")
    assert shown == (200, answer)
    assert wrong[0] == 400
    assert WORD not in json.dumps([answer, wrong])


async def rekeyed(shell: Shell, folder: Path, old: str, new: str) -> None:
    """The new key comes to all nodes, then first on all of them; each reads its file again."""

    async def have(*keys: str) -> None:
        ids = [key.id for key in keys_in("\n".join(keys), "here")]
        for number in (1, 2, 3):
            write(folder / f"keys{number}", *keys)

        async def all_have() -> bool:
            nodes = (await shell.json("cluster", "status"))["nodes"]
            return all(node.get("keyIds") == ids for node in nodes)

        await until(all_have, 20)

    await have(old, new)
    await have(new, old)
    said = await shell.json("secret", "rekey")
    assert (said["rekeyed"], said.get("unopened", 0)) == (1, 0)
    await have(new)


async def restored(running: Cluster, folder: Path, file: Path, key: str) -> None:
    """In a cluster without the key the secret is listed, and attempts say what is missing."""
    await lose(running)
    write(folder / "keys2", new_key())
    write(folder / "keys1", *(folder / "keys2").read_text().split())
    write(folder / "keys3", *(folder / "keys2").read_text().split())
    await offline(running, "n2", "restore", str(file))
    running.nodes["n2"].start()
    await until(lambda: running.leader(), READY_S)
    running.start()
    async with (
        serving(running.endpoints),
        AsyncClient(running.endpoints, timeout=20) as client,
    ):
        await until(lambda: is_whole(client), READY_S)
        assert [one.name async for one in client.secrets.list()] == ["api-key"]
        run = await run_of(client)
        assert (run.state, run.error.kind) == (run_pb2.RUN_STATE_FAILED, "secret.key")
        assert "does not have the key" in run.error.message
