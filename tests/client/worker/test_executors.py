"""The executors against real servers and real processes, on loopback only."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from aiohttp import web
from google.protobuf.timestamp_pb2 import Timestamp

from raftsched.client import Worker
from raftsched.client.executors import Executor, GrpcExecutor, HttpExecutor, ShellExecutor
from raftsched.client.worker import lease_secrets
from raftsched.client.worker.executors import grpc_call
from raftsched.proto.v1.job_pb2 import Action, ShellAction
from raftsched.proto.v1.worker_pb2 import Result, Stop
from raftsched.statemachine.core.rejection import Reason

from .node import PATIENCE_S, Node
from .test_worker import serving

PYTHON = sys.executable
SCHEDULED = Timestamp(seconds=1_767_232_800, nanos=7_000_000)
# What every target hears of its run, beside the run's id.
TRACE = {"traceparent": "00-1", "tracestate": "a=b"}
FACTS = {
    "Token": "1", "Attempt": "1", "Job": "j", "Namespace": "default",
    "Scheduled-Time": "2026-01-01T02:00:00.007Z",
}  # fmt: skip
LOOPBACK = ["loopback"]
WORD = "XplainX-secret-1234"
Answer = Callable[[web.Request], Awaitable[web.Response]]


async def carry_out(executor: Executor, action: Action, payload: bytes = b"") -> Result:
    """The end of one attempt at this action by a worker with this executor."""
    async with Node() as node, serving(Worker(node.address, executors=[executor])):
        lease = node.lease(
            payload=payload, action=action, scheduled_time=SCHEDULED, trace_context=TRACE
        )
        return await node.ended(lease)


@asynccontextmanager
async def website(answer: Answer) -> AsyncIterator[str]:
    application = web.Application(client_max_size=10_000_000)
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def http(url: str, **fields: Any) -> Action:  # noqa: ANN401
    return Action(http={"url": url, **fields})  # type: ignore[arg-type]


async def test_http_sends_the_payload_with_run_and_token_and_keeps_the_answer() -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, dict(request.headers), await request.read()))
        return web.json_response({"ok": True})

    async with website(answer) as url:
        forged = {
            "raftsched-token": "forged",
            "content-length": "0",
            "Transfer-Encoding": "chunked",
        }
        action = http(f"{url}/a?b=c", headers={"X-Team": "a", **forged})
        end = await carry_out(HttpExecutor(allow=LOOPBACK), action, b'{"n": 1}')

    [(method, headers, body)] = seen
    assert (method, body) == ("POST", b'{"n": 1}')
    assert headers["X-Team"] == "a"
    assert headers.items() >= TRACE.items()
    assert headers.items() >= {f"Raftsched-{name}": text for name, text in FACTS.items()}.items()
    assert headers["Idempotency-Key"] == headers["Raftsched-Run"] == end.run
    assert end.success.result.data == b'{"ok": true}'
    assert end.success.result.content_type.startswith("application/json")


@pytest.mark.parametrize(
    ("status", "expected", "kind"),
    [
        (200, [], ""),
        (299, [], ""),
        (302, [], "http.302"),
        (404, [], "http.404"),
        (404, [404], ""),
        (200, [404], "http.200"),
        (500, [], "http.500"),
    ],
)
async def test_http_statuses_decide(status: int, expected: list[int], kind: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text="why", headers={"Location": "/elsewhere"})

    async with website(answer) as url:
        end = await carry_out(HttpExecutor(allow=LOOPBACK), http(url, expected_statuses=expected))

    assert end.failure.error.kind == kind
    assert not end.failure.error.trace
    assert not end.failure.fatal
    assert not kind or "why" in end.failure.error.message


@pytest.mark.parametrize(
    ("status", "said", "warning"),
    [(200, " 3 rows had no address ", "3 rows had no address"), (200, " ", ""), (500, "oh", "")],
)
async def test_http_takes_a_header_for_a_warning(status: int, said: str, warning: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text="ok", headers={"Raftsched-Warning": said})

    async with website(answer) as url:
        end = await carry_out(HttpExecutor(allow=LOOPBACK), http(url))

    assert (end.HasField("success"), end.notes.warning) == (status == 200, warning)


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n", b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnone",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 9_000 + b"\r\n\r\n",
    ],
    ids=["status", "header", "nothing", "length", "chunk", "short", "gzip", "long"],
)  # fmt: skip
async def test_what_http_says_of_a_broken_answer_is_without_the_urls_secrets(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        action = http(f"http://ada:{WORD}@{place}/a?key={WORD}#{WORD}")
        end = await carry_out(HttpExecutor(allow=LOOPBACK), action)

    assert end.failure.error.kind == "http.connection"
    assert end.failure.error.message.startswith(f"POST http://{place}/a: ")
    assert WORD not in str(end)
    assert "\n" not in end.failure.error.message


async def test_http_waits_as_long_as_the_server_asks_for() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "17"})

    async with website(answer) as url:
        end = await carry_out(HttpExecutor(allow=LOOPBACK), http(f"{url}/x?secret=1"))

    assert end.failure.retry_after.ToSeconds() == 17
    assert "secret" not in end.failure.error.message


async def test_http_keeps_no_part_of_an_answer_that_is_too_large() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 70_000)

    async with website(answer) as url:
        end = await carry_out(HttpExecutor(allow=LOOPBACK), http(url))

    assert end.HasField("success")
    assert not end.success.HasField("result")
    assert b"65,536" in end.log_tail


@pytest.mark.parametrize(
    ("url", "kind", "fatal"),
    [
        ("http://127.0.0.1:1/", "http.connection", False),
        ("ftp://127.0.0.1/", "http.url", True),
        ("http://", "http.url", True),
    ],
)
async def test_http_says_what_is_wrong_with_an_address(url: str, kind: str, fatal: bool) -> None:
    end = await carry_out(HttpExecutor(allow=LOOPBACK), http(url))

    assert (end.failure.error.kind, end.failure.fatal) == (kind, fatal)


async def test_http_has_a_time_limit_of_its_own() -> None:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(PATIENCE_S)
        return web.Response()

    async with website(answer) as url:
        end = await carry_out(HttpExecutor(timeout=0.1, allow=LOOPBACK), http(url))

    assert end.failure.error.kind == "http.timeout"


def test_http_without_its_library_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ImportError, match=r"raftsched\[http\]"):
        HttpExecutor()


Method = Callable[[bytes, Any], Awaitable[bytes]]


@asynccontextmanager
async def grpc_service(method: Method, *others: str) -> AsyncIterator[str]:
    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(method)
    handlers = {"Do": handler}
    service = grpc.method_handlers_generic_handler("demo.Service", handlers)
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    for one in others:
        server.add_insecure_port(one)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def call(target: str, method: str = "demo.Service/Do", **fields: Any) -> Action:  # noqa: ANN401
    return Action(grpc={"target": target, "method": method, **fields})  # type: ignore[arg-type]


async def test_grpc_sends_the_payload_as_the_request() -> None:
    seen: dict[str, str] = {}

    async def method(request: bytes, context: Any) -> bytes:  # noqa: ANN401
        seen.update(dict(context.invocation_metadata()))
        return request[::-1]

    async with grpc_service(method) as target:
        end = await carry_out(GrpcExecutor(), call(target, metadata={"Team": "a"}), b"abc")

    assert end.success.result.data == b"cba"
    assert seen["team"] == "a"
    assert seen.items() >= TRACE.items()
    assert seen.items() >= {f"raftsched-{k}".lower(): text for k, text in FACTS.items()}.items()
    assert seen["idempotency-key"] == seen["raftsched-run"] == end.run


@pytest.mark.parametrize("when", ["initial", "trailing"])
async def test_grpc_takes_metadata_of_the_answer_for_a_warning(when: str) -> None:
    async def method(request: bytes, context: Any) -> bytes:  # noqa: ANN401
        said = (("raftsched-warning", "look"),)
        if when == "initial":
            await context.send_initial_metadata(said)
        else:
            context.set_trailing_metadata(said)
        return b"ok"

    async with grpc_service(method) as target:
        end = await carry_out(GrpcExecutor(), call(target))

    assert (end.success.result.data, end.notes.warning) == (b"ok", "look")


async def test_grpc_calls_no_sockets_of_this_machine_unless_it_may() -> None:
    async def method(request: bytes, context: Any) -> bytes:  # noqa: ANN401
        return b"ok"

    # The path of a socket has a hundred characters at most, so it is one without a path.
    own = f"unix-abstract:raftsched-{os.getpid()}-{os.urandom(4).hex()}"
    barred = [own, "unix:/s", "unix:///s", "UNIX:/s", "vsock:1:2", "xds:///a", "a/b:1", "", "a b:1"]
    async with grpc_service(method, own) as target:
        port = target.rpartition(":")[2]
        taken = [target, f"localhost:{port}", f"dns:///{target}", f"ipv4:{target}"]
        for one in taken:
            assert (await carry_out(GrpcExecutor(), call(one))).success.result.data == b"ok", one
        for one in barred:
            end = await carry_out(GrpcExecutor(), call(one))
            assert (end.failure.error.kind, end.failure.fatal) == ("grpc.target", True), one
        end = await carry_out(GrpcExecutor(sockets=True), call(own))

    assert end.success.result.data == b"ok"
    # By that name it is a host.
    assert grpc_call.in_network("unix:80") == "dns:///unix:80"


async def test_grpc_refusals_become_kinds() -> None:
    async def method(request: bytes, context: Any) -> bytes:  # noqa: ANN401
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")
        return b""

    async with grpc_service(method) as target:
        refused = await carry_out(GrpcExecutor(), call(target))
        unknown = await carry_out(GrpcExecutor(), call(target, "demo.Service/Other"))
        wrong = await carry_out(GrpcExecutor(), call(target, "Do"))
    gone = await carry_out(GrpcExecutor(), call("127.0.0.1:1"))

    assert refused.failure.error.kind == "grpc.FAILED_PRECONDITION"
    assert not refused.failure.error.trace
    assert "not today" in refused.failure.error.message
    assert unknown.failure.error.kind == "grpc.UNIMPLEMENTED"
    assert (wrong.failure.error.kind, wrong.failure.fatal) == ("grpc.method", True)
    assert gone.failure.error.kind == "grpc.UNAVAILABLE"


async def test_grpc_keeps_a_bounded_number_of_connections() -> None:
    executor = GrpcExecutor()
    for port in range(1, 80):
        await executor._target(f"127.0.0.1:{port}", tls=False)

    assert len(executor._targets) == 64
    await executor.close()


def shell(*argv: str, **fields: Any) -> Action:  # noqa: ANN401
    return Action(shell={"argv": argv, **fields})  # type: ignore[arg-type]


LIMITS: list[dict[str, Any]] = [{}, {"memory": 1 << 30}]


@pytest.mark.parametrize("settings", LIMITS)
async def test_shell_runs_argv_as_it_is(settings: dict[str, Any]) -> None:
    end = await carry_out(ShellExecutor(**settings), shell("/bin/echo", "$HOME", "a  b", "`x`"))

    assert end.success.result.data == b"$HOME a  b `x`\n"
    assert end.success.result.content_type == "text/plain; charset=utf-8"


@pytest.mark.parametrize("settings", LIMITS)
async def test_shell_gives_the_actions_environment_the_run_and_nothing_else(
    settings: dict[str, Any],
) -> None:
    given = {"A": "1", "B": "x y"}
    action = shell("/usr/bin/env", environment={**given, "RAFTSCHED_RUN_TOKEN": "forged"})

    end = await carry_out(ShellExecutor(**settings), action)

    facts = {f"RAFTSCHED_RUN_{name.upper().replace('-', '_')}": FACTS[name] for name in FACTS}
    lines = end.success.result.data.decode().splitlines()
    assert dict(line.split("=", 1) for line in lines) == {
        **given, **facts, "RAFTSCHED_RUN": end.run, "TRACEPARENT": "00-1", "TRACESTATE": "a=b",
    }  # fmt: skip


async def test_shell_hands_over_the_payload_and_looks_by_path() -> None:
    end = await carry_out(ShellExecutor(), shell("cat"), b"payload")

    assert end.success.result.data == b"payload"


async def test_shell_uses_a_shell_only_if_asked() -> None:
    asked = await carry_out(ShellExecutor(), shell("echo $((2 + 3))", use_shell=True))
    not_asked = await carry_out(ShellExecutor(), shell("echo $((2 + 3))"))

    assert asked.success.result.data == b"5\n"
    assert not_asked.failure.error.kind == "shell.start"
    assert not not_asked.failure.error.trace


async def test_shell_reports_exit_codes_and_signals() -> None:
    code = await carry_out(ShellExecutor(), shell("echo oh >&2; exit 3", use_shell=True))
    killed = await carry_out(ShellExecutor(), shell("kill -SEGV $$", use_shell=True))
    missing = await carry_out(ShellExecutor(memory=1 << 30), shell("/no/such/thing"))

    assert (code.failure.error.kind, code.failure.error.message) == ("exit.3", "exit code 3: oh")
    assert code.log_tail == b"oh\n"
    assert killed.failure.error.kind == "signal.SIGSEGV"
    assert missing.failure.error.kind == "shell.start"
    assert "/no/such/thing" in missing.failure.error.message


async def test_shell_takes_an_exit_code_for_a_warning_where_the_job_says_so() -> None:
    line = "echo out; echo oh >&2; exit 3"
    warned = await carry_out(
        ShellExecutor(), shell(line, use_shell=True, warning_exit_codes=[2, 3])
    )
    silent = await carry_out(
        ShellExecutor(), shell("exit 3", use_shell=True, warning_exit_codes=[3])
    )
    failed = await carry_out(ShellExecutor(), shell(line, use_shell=True, warning_exit_codes=[4]))

    assert (warned.success.result.data, warned.notes.warning) == (b"out\n", "exit code 3: oh")
    assert (silent.HasField("success"), silent.notes.warning) == (True, "exit code 3")
    assert (failed.failure.error.kind, failed.HasField("notes")) == ("exit.3", False)


async def test_shell_limits_memory() -> None:
    code = "import sys; data = bytearray(2 << 30); print(len(data))"

    end = await carry_out(ShellExecutor(memory=512 << 20), shell(PYTHON, "-c", code))

    assert end.failure.error.kind == "exit.1"
    assert "MemoryError" in end.failure.error.message


async def test_shell_caps_the_output_and_reads_on() -> None:
    code = "import sys; sys.stdout.write('x' * 3_000_000); sys.stderr.write('the end')"

    end = await carry_out(ShellExecutor(), shell(PYTHON, "-c", code))

    assert end.HasField("success")
    assert not end.success.HasField("result")
    assert len(end.log_tail) <= 16_384


def group_of(pid_file: Path) -> int:
    """The group that a command has written down, once it has."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if pid_file.exists() and (text := pid_file.read_text().strip()):
            return int(text)
    raise AssertionError("the command did not start")


async def gone(group: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if not any(_is_in(group, one) for one in Path("/proc").iterdir() if one.name.isdecimal()):
            return True
        await asyncio.sleep(0.01)
    return False


def _is_in(group: int, process: Path) -> bool:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    # A zombie has ended; whoever made it has not looked yet.
    return int(fields[2]) == group and fields[0] != "Z"


async def test_shell_leaves_nobody_behind_and_waits_for_nobody(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $$ > {tmp_path}/pid; echo done"

    end = await carry_out(ShellExecutor(), shell(script, use_shell=True))

    assert end.success.result.data == b"done\n"
    group = group_of(tmp_path / "pid")
    assert group != os.getpgid(0)
    assert await gone(group)


async def test_shell_ends_what_takes_too_long_even_if_it_does_not_want_to(tmp_path: Path) -> None:
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 60; sleep 60"

    executor = ShellExecutor(timeout=0.5, grace=0.1)
    end = await carry_out(executor, shell(script, use_shell=True))

    assert end.failure.error.kind == "shell.timeout"
    assert await gone(group_of(tmp_path / "pid"))


@pytest.mark.parametrize(
    ("kind", "heard"), [(Stop.KIND_CANCEL, "TERM\n"), (Stop.KIND_LOST, "")], ids=["cancel", "lost"]
)
async def test_shell_stops_with_a_word_when_cancelled_and_at_once_when_lost(
    kind: Stop.Kind.ValueType, heard: str, tmp_path: Path
) -> None:
    script = (
        f"trap 'echo TERM > {tmp_path}/heard; exit 0' TERM; echo $$ > {tmp_path}/pid;"
        "while :; do sleep 0.05; done"
    )
    async with Node() as node, serving(Worker(node.address, executors=[ShellExecutor()])):
        lease = node.lease(action=shell(script, use_shell=True))
        await node.until(lambda: lease.token in node.standing)
        group = await asyncio.to_thread(group_of, tmp_path / "pid")
        node.stop_run(lease, kind)
        assert await gone(group)
        if kind == Stop.KIND_CANCEL:
            assert (await node.ended(lease)).failure.cancelled

    said = tmp_path / "heard"
    assert (said.read_text() if said.exists() else "") == heard


async def test_shell_commands_do_not_outlive_their_worker(tmp_path: Path) -> None:
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 60; sleep 60"
    async with Node() as node:
        worker = Worker(node.address, executors=[ShellExecutor(grace=30)], grace=0)
        async with serving(worker):
            lease = node.lease(action=shell(script, use_shell=True))
            await node.until(lambda: lease.token in node.standing)
            group = await asyncio.to_thread(group_of, tmp_path / "pid")

    assert await gone(group)
    assert node.results[lease.token].HasField("given_back")


async def test_an_executor_speaks_up_where_a_job_wants_to_hear_of_it() -> None:
    async with Node() as node, serving(Worker(node.address, executors=[ShellExecutor()])):
        lease = node.lease(action=shell("sleep", "30"), heartbeat_timeout={"nanos": 300_000_000})
        await node.until(lambda: len(node.progress) >= 2)
        node.stop_run(lease, Stop.KIND_CANCEL)
        await node.ended(lease)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="timeout"):
        ShellExecutor(timeout=0)
    with pytest.raises(ValueError, match="memory"):
        ShellExecutor(memory=1)


# Secrets.


def secretly(url: str) -> Action:
    return http(url, headers={"Authorization": "Bearer secret://key"})


def secret_shell(script: str) -> Action:
    environment = {"KEY": "secret://key"}
    return Action(shell=ShellAction(argv=["sh", "-c", script], environment=environment))


async def with_secret(executor: Executor, action: Action, **secrets: str) -> tuple[Result, Node]:
    """The end of an attempt by a worker whose cluster gives it these secrets."""
    async with Node() as node, serving(Worker(node.address, executors=[executor])):
        node.secrets = secrets
        end = await node.ended(node.lease(action=action))
        return end, node


async def test_http_puts_a_secret_into_a_header_and_shows_it_nowhere() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response(text=f"you sent {seen[-1]}")

    async with website(answer) as url:
        end, node = await with_secret(HttpExecutor(allow=LOOPBACK), secretly(url), key=WORD)

    assert seen == [f"Bearer {WORD}"]
    assert end.success.result.data == b"you sent Bearer (hidden)"
    [asked] = node.resolved
    assert (asked.run, asked.token) == (end.run, end.token)
    assert asked.worker


async def test_http_hides_a_secret_in_what_was_refused() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=401, text="." * 1_015 + request.headers["Authorization"])

    async with website(answer) as url:
        end, _ = await with_secret(HttpExecutor(allow=LOOPBACK), secretly(url), key=WORD)

    assert end.failure.error.kind == "http.401"
    assert WORD[:4] not in str(end)


async def test_grpc_puts_a_secret_into_metadata_and_keeps_the_length_of_an_answer() -> None:
    seen: list[str] = []

    async def method(request: bytes, context: Any) -> bytes:  # noqa: ANN401
        seen.append(dict(context.invocation_metadata())["x-key"])
        if len(seen) > 1:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{seen[-1]} is no key")
        return b"\x0a\x12" + seen[-1].encode()

    async with grpc_service(method) as target:
        action = call(target, metadata={"X-Key": "secret://key"})
        good, _ = await with_secret(GrpcExecutor(), action, key=WORD)
        bad, _ = await with_secret(GrpcExecutor(), action, key=WORD)
        wrong, _ = await with_secret(GrpcExecutor(), action, key="no ascii: ä")

    assert seen == [WORD, WORD]
    assert good.success.result.data == b"\x0a\x12" + b"*" * len(WORD)
    assert bad.failure.error.kind == "grpc.PERMISSION_DENIED"
    assert bad.failure.error.message.endswith("(hidden) is no key")
    assert (wrong.failure.error.kind, wrong.failure.fatal) == ("secret.value", True)
    assert "ascii:" not in str(wrong)


async def test_a_value_that_a_header_cannot_hold_fails_for_good() -> None:
    end, _ = await with_secret(
        HttpExecutor(allow=LOOPBACK), secretly("http://127.0.0.1:9"), key="two\nlines"
    )
    assert (end.failure.error.kind, end.failure.fatal) == ("secret.value", True)
    assert end.failure.error.message == (
        "Authorization cannot hold the value of the secret key: a header has no line end"
    )


async def test_shell_gets_secrets_in_its_environment() -> None:
    script = 'echo "$KEY"; echo "err $KEY" >&2; exit 3'
    end, _ = await with_secret(ShellExecutor(), secret_shell(script), key=WORD)

    assert end.failure.error.kind == "exit.3"
    assert end.failure.error.message == "exit code 3: err (hidden)"
    assert b"(hidden)" in end.log_tail
    assert WORD not in str(end)


async def test_the_end_of_a_long_complaint_has_no_half_of_a_secret() -> None:
    script = 'for n in 1 2 3 4 5 6 7 8 9; do printf "%0200d%s" 0 "$KEY" >&2; done; exit 3'
    end, _ = await with_secret(ShellExecutor(), secret_shell(script), key=WORD * 10)
    assert WORD not in str(end)
    assert WORD[-5:] not in str(end)


async def test_a_warning_hides_a_secret_too() -> None:
    action = secret_shell('echo "careful with $KEY" >&2; exit 3')
    action.shell.warning_exit_codes.append(3)
    end, _ = await with_secret(ShellExecutor(), action, key=WORD)
    assert end.notes.warning == "exit code 3: careful with (hidden)"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.ERROR_REASON_SECRET_NOT_FOUND, "secret.missing"),
        (Reason.ERROR_REASON_SECRET_KEY_MISSING, "secret.key"),
        (Reason.ERROR_REASON_LEASE_LOST, "secret.refused"),
    ],
)
async def test_a_secret_that_cannot_be_had_fails_the_attempt(
    reason: Reason.ValueType, kind: str
) -> None:
    async with (
        Node() as node,
        serving(Worker(node.address, executors=[HttpExecutor(allow=LOOPBACK)])),
    ):
        node.refuses_secrets = reason
        end = await node.ended(node.lease(action=secretly("http://127.0.0.1:9")))
    assert (end.failure.error.kind, end.failure.fatal) == (kind, False)


async def test_where_nobody_answers_the_run_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_secrets, "TIMEOUT_S", 0.3)
    async with (
        Node() as node,
        serving(Worker(node.address, executors=[HttpExecutor(allow=LOOPBACK)])),
    ):
        node.refuses_secrets = Reason.ERROR_REASON_NO_QUORUM
        end = await node.ended(node.lease(action=secretly("http://127.0.0.1:9")))
    assert end.given_back.delay.ToSeconds() == 5
