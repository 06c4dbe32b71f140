"""An app without a cluster: what it declares, defers, refuses, and how its worker calls a task."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import pytest

from raftsched.client import GIVEN, App, Context, DeferCall, Retry, cron, every
from raftsched.client.app.app_worker import AppWorker
from raftsched.client.testing import Attempt
from raftsched.client.worker.handlers import Handler
from raftsched.proto.v1 import common_pb2, job_pb2
from raftsched.proto.v1.worker_pb2 import Lease, Result

from ...rows import each
from ..worker.node import PATIENCE_S, Node

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Order:
    number: int
    items: list[str]


class Parcel(TypedDict):
    order: int


class BadCard(Exception): ...


app = App(name="test")


@app.task
async def whole(order: Order) -> int:
    """Takes its payload whole.

    And more.
    """
    return order.number


@app.task
def members(order: Order, note: str = "none", *, context: Context = GIVEN) -> str:
    return f"{order.number} {note}"


@app.task
def parcel(parcel: Parcel) -> int:
    return parcel["order"]


@app.task
def raw(data: bytes) -> int:
    return len(data)


@app.task
def anything(words: list[str], /) -> int:
    return len(words)


@app.task
def maybe(order: Order | None = None) -> bool:
    return order is None


@app.task
def text(to: str) -> str:
    return to


@app.task
def nothing() -> None: ...


ORDER, SHOWN = Order(7, ["a"]), {"number": 7, "items": ["a"]}


@each(
    ("task", "args", "kwargs", "payload", "value"),
    [
        (whole, [ORDER], {}, SHOWN, 7),
        (whole, [], {"order": ORDER}, SHOWN, 7),
        (members, [ORDER], {}, {"order": SHOWN}, "7 none"),
        (members, [ORDER, "n"], {}, {"order": SHOWN, "note": "n"}, "7 n"),
        (members, [ORDER], {"note": "n"}, {"order": SHOWN, "note": "n"}, "7 n"),
        (parcel, [{"order": 7}], {}, {"order": 7}, 7),
        (raw, [b"\0\xff"], {}, b"\0\xff", 2),
        (anything, [["a", "b"]], {}, ["a", "b"], 2),
        (maybe, [], {}, None, True),
        (maybe, [None], {}, "null", True),
        (maybe, [ORDER], {}, SHOWN, False),
        (text, ["ann"], {}, {"to": "ann"}, "ann"),
        (nothing, [], {}, None, None),
    ],
)
def test_the_arguments_of_a_call_reach_the_function(
    task: Any,  # noqa: ANN401
    args: list[Any],
    kwargs: dict[str, Any],
    payload: object,
    value: object,
) -> None:
    made = task.entry(*args, **kwargs).trigger().payload

    shown = payload if isinstance(payload, bytes) or payload is None else json.dumps(payload)
    if payload == "null":
        shown = "null"
    if isinstance(shown, str):
        assert json.loads(made.data) == json.loads(shown)
    else:
        assert made.data == (shown or b"")
    outcome = Attempt().run(task.function, made.data or None, made.content_type)
    assert outcome.value == value


@each(
    ("task", "args", "kwargs", "said"),
    [
        (whole, [], {}, "missing a required argument: 'order'; it takes order"),
        (whole, [ORDER], {"key": "k"}, r"unexpected keyword argument 'key'.*options\(key=\.\.\.\)"),
        (whole, ["ann"], {}, "Expected `object`, got `str`"),
        (whole, [Order(7, "a")], {}, r"Expected `array`, got `str` - at `\$.items`"),  # type: ignore[arg-type]
        (members, [ORDER, 5], {}, r"Expected `str`, got `int` - at `\$.note`"),
        (raw, ["text"], {}, "bytes"),
        (nothing, [1], {}, "too many positional arguments; it takes no arguments"),
    ],
)
def test_what_the_handler_would_refuse_is_refused_at_once(
    task: Any,  # noqa: ANN401
    args: list[Any],
    kwargs: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(TypeError, match=said):
        task.entry(*args, **kwargs)


def test_options_are_written_into_the_trigger() -> None:
    other = App(name="now")
    other.now = lambda: NOW

    @other.task
    def work(n: int) -> None: ...

    ten = timedelta(minutes=10)
    entry = work.options(
        in_=ten, key="k", priority="high", queue="q", labels={"a": "b"}, hold=5,
        when_taken="reject", concurrency_key="c", force=True, if_running="refuse",
        trace_context={"traceparent": "00-1-2-01"},
    ).entry(1)  # fmt: skip
    entry.labels["tenant"] = "acme"
    made = entry.trigger()

    assert made.due_time.ToDatetime(tzinfo=UTC) == NOW + ten
    assert (made.job, made.queue, made.concurrency_key) == ("work", "q", "c")
    assert (made.unique.key, made.unique.hold.seconds, made.force) == ("k", 5, True)
    assert dict(made.labels) == {"a": "b", "tenant": "acme"}
    assert made.trace_context.traceparent == "00-1-2-01"
    assert work.options(at=NOW).entry(1).trigger().due_time == made.due_time.__class__(
        seconds=int(NOW.timestamp())
    )
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"kee": 1}, "no option 'kee'"), ({"in_": 5, "at": NOW}, "both in_ and at"),
        ({"in_": -1}, "not negative"), ({"priority": "urgent"}, "write one of"),
    ]  # fmt: skip
    for wrong, said in wrongs:
        with pytest.raises((TypeError, ValueError), match=said):
            work.options(**wrong).entry(1).trigger()


def test_a_job_is_declared_with_its_words() -> None:
    other = App(name="shop", namespace="eu")

    @other.task
    async def first() -> None: ...

    @other.job(
        cron("0 9 * * mon", zone="Europe/Berlin"), every(60), payload={"to": "ann"},
        retry=Retry(3, fatal=[BadCard, "Other"]), after=first, on_failure=first, name="weekly",
    )  # fmt: skip
    def report(to: str) -> str:
        """The report.

        At length.
        """
        return to

    assert report("x") == "x"
    assert (report.__name__, report.__doc__) == ("report", report.function.__doc__)
    [_, job] = other.jobs_declared()
    assert (job.namespace, job.name, job.spec.action.handler) == ("eu", "weekly", "weekly")
    assert (job.spec.description, dict(job.spec.labels)) == (
        "The report.",
        {"raftsched-app": "shop"},
    )
    assert job.spec.payload.data == b'{"to":"ann"}'
    assert list(job.spec.retry.fatal_kinds) == ["BadCard", "Other"]
    assert [one.job for one in job.spec.upstream.jobs] == ["first"] == [job.spec.on_failure.job]
    assert (len(job.spec.schedules), job.spec.timing.zone) == (2, "Europe/Berlin")
    assert "labels" not in str(App().jobs_declared())


def yields() -> Iterator[int]:
    yield 1


def needs(wanted: Order = GIVEN) -> None: ...


def no_type(wanted=GIVEN) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


def takes(to: str) -> None: ...


DECLARED: list[tuple[Callable[[App], object], str]] = [
    (lambda app: app.job("0 9 * * *")(nothing.function), r"write cron\('0 9 \* \* \*'\)"),  # type: ignore[call-overload]
    (lambda app: app.job(cron("* * * * *"))(takes), "missing required field `to`"),
    (lambda app: app.job(cron("* * * * *"), payload={"too": 1})(takes), "unknown field `too`"),
    (lambda app: app.job(payload=1)(nothing.function), "takes no payload"),
    (lambda app: app.task(yields), "yields; a handler returns"),
    (lambda app: app.task(name="Send Mail")(takes), "give it another one"),
    (lambda app: app.task(name="http")(takes), "name of an executor"),
    (lambda app: [app.task(takes), app.task(takes)], "there is a task 'takes' already"),
    (lambda app: app.task(queu="q")(takes), "there is no option 'queu'"),  # type: ignore[call-overload]
    (lambda app: app.task(retry="x")(takes), "retry: 'x' is not understood"),  # type: ignore[call-overload]
    (lambda app: app.task(no_type), "which class it is"),
    (lambda app: [app.task(needs), app.worker()], "task needs wants a Order, and nothing provides"),
    (lambda app: app.worker(), "this app has no tasks"),
    (lambda app: app.around_run(takes), "does not yield"),  # type: ignore[type-var]
    (lambda app: app.provide(takes), "what it returns"),
    (lambda app: Handler("needs", needs), "only an App provides it"),
]


@each(("declare", "said"), DECLARED, ids=lambda one: one if isinstance(one, str) else "")
def test_what_is_wrong_with_a_declaration_is_said_where_it_stands(
    declare: Callable[[App], object], said: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        declare(App())


class A: ...


class B: ...


def a_of_b(b: B) -> A:
    return A()


def b_of_a(a: A) -> B:
    return B()


def b() -> B:
    return B()


async def b_later() -> B:
    return B()


def wants(a: A = GIVEN) -> None: ...


async def around(context: Context) -> AsyncIterator[None]:
    yield


@each(
    ("arrange", "said"),
    [
        (lambda app: [app.provide(a_of_b), app.provide(b_of_a)], "a_of_b -> b_of_a -> a_of_b"),
        (lambda app: app.provide(a_of_b), "provider a_of_b wants a B"),
        (lambda app: [app.provide(a_of_b), app.provide(per="run")(b)], "a_of_b is made once"),
        (
            lambda app: [app.provide(per="run")(a_of_b), app.provide(per="run")(b_later)],
            "task wants is not async and provider b_later is",
        ),
        (lambda app: [app.provide(a_of_b), app.provide(b), app.provide(b)], "provides a B already"),
        (lambda app: [app.provide(lambda: A()), app.provide(b)], "what it returns"),
        (
            lambda app: [app.provide(a_of_b), app.provide(b), app.around_run(around)],
            "task wants is not async and around, which is to stand around it, is",
        ),
        (lambda app: app.provide(per="day")(b), "write 'worker' or 'run'"),
    ],
)
def test_dependencies_that_cannot_be_are_refused_before_a_run(
    arrange: Callable[[App], Any], said: str
) -> None:
    other = App()
    other.task(wants)
    with pytest.raises((TypeError, ValueError), match=said):
        (arrange(other), other.worker())


async def results(worker: AppWorker, *wanted: tuple[str, bytes, str]) -> list[Result]:
    """What comes of leases; the worker has ended by then."""
    async with Node() as node:
        worker.connect_to(node.address)
        serving = asyncio.create_task(worker.serve())
        try:
            found = []
            for lease in wanted:
                found.append(await node.ended(node.lease(*lease)))  # noqa: PERF401
        finally:
            worker.stop(now=True)
            async with asyncio.timeout(PATIENCE_S):
                await serving
        return found


async def test_a_worker_carries_out_tasks_within_what_surrounds_them() -> None:
    seen: list[str] = []
    other = App()

    @other.on_startup
    async def up() -> None:
        seen.append("up")

    @other.on_startup
    def up_too() -> None:
        seen.append("up too")

    @other.on_shutdown
    def down() -> None:
        seen.append("down")

    @other.provide
    async def make_a() -> AsyncIterator[A]:
        seen.append("a")
        yield A()
        seen.append("a ends")

    @other.provide(per="run")
    def make_b(a: A, context: Context) -> Iterator[B]:
        seen.append("b")
        yield B()
        seen.append("b ends")

    @other.around_run
    def outer(context: Context) -> Iterator[None]:
        seen.append("outer")
        try:
            yield
        finally:
            seen.append("outer ends")

    @other.around_run
    def inner(context: Context) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            seen.append(f"inner saw {error}")
            raise

    @other.task
    async def works(n: int, b: B = GIVEN, context: Context = GIVEN) -> int:
        seen.append("works")
        assert isinstance(b, B)
        return n + context.attempt

    @other.task
    def fails(b: B = GIVEN) -> None:
        raise KeyError("k")

    one, two = await results(other.worker(), ("works", b'{"n": 1}', ""), ("fails", b"", ""))

    assert one.success.result.data == b"2"
    assert two.failure.error.kind == "KeyError"
    assert seen == [
        "a", "up", "up too", "outer", "b", "works", "b ends", "outer ends",
        "outer", "b", "inner saw 'k'", "outer ends", "down", "a ends",
    ]  # fmt: skip


def test_an_attempt_at_a_task_is_given_what_the_test_hands_in() -> None:
    other = App()

    @other.task
    async def works(n: int, b: B = GIVEN, context: Context = GIVEN) -> int:
        assert isinstance(b, B)
        return n + context.attempt

    assert Attempt(attempt=3, given={B: B()}).run(works, {"n": 1}).value == 4
    with pytest.raises(TypeError, match=r"Attempt\(given=\{B: \.\.\.\}\)"):
        Attempt().run(works, {"n": 1})
    assert asyncio.run(works(1, B(), Attempt().context)) == 2


class Backwards:
    def encode(self, data: bytes, content_type: str) -> tuple[bytes, str]:
        return data[::-1], "application/x-backwards"

    def decode(self, data: bytes, content_type: str) -> tuple[bytes, str]:
        if content_type != "application/x-backwards":
            return data, content_type
        return data[::-1], "application/json"


async def test_a_codec_turns_payloads_and_results() -> None:
    other = App(codec=Backwards())

    @other.job(cron("* * * * *"), payload={"n": 1})
    async def work(n: int) -> dict[str, int]:
        return {"n": n}

    sent = work.entry(12).trigger().payload
    assert (sent.data, sent.content_type) == (b'}21:"n"{', "application/x-backwards")
    [job] = other.jobs_declared()
    assert job.spec.payload.data == b'}1:"n"{'

    [coded, plain] = await results(
        other.worker(), ("work", sent.data, sent.content_type),
        ("work", b'{"n": 3}', "application/json"),
    )  # fmt: skip
    assert coded.success.result == common_pb2.Payload(
        data=b'}21:"n"{', content_type="application/x-backwards"
    )
    assert plain.success.result.data == b'}3:"n"{'


async def test_what_blocks_is_refused_on_a_loop() -> None:
    with pytest.raises(RuntimeError, match=r"await task.defer"):
        nothing.defer_sync()
    assert await app.defer_many([]) == []
    other = App()
    with pytest.raises(ValueError, match="another app"):
        await other.defer_many([nothing.entry()])
    with pytest.raises(TypeError, match="is no entry"):
        await app.defer_many([1])  # type: ignore[arg-type]


def test_an_app_goes_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFTSCHED_ENDPOINTS", "a:1,b:2")
    monkeypatch.setenv("RAFTSCHED_NAMESPACE", "eu")
    found = App().settings
    assert (found["endpoints"], found["namespace"], App(namespace="us").namespace) == (
        "a:1,b:2", "eu", "us",
    )  # fmt: skip
    assert App("c:3").settings["endpoints"] == "c:3"


@pytest.mark.skipif(
    importlib.util.find_spec("pydantic") is None, reason="pydantic is not installed"
)
def test_a_model_of_pydantic_is_taken_whole_and_returned() -> None:
    pydantic: Any = importlib.import_module("pydantic")
    fields = {"to": (str, ...), "at": (datetime, ...)}
    Mail: Any = pydantic.create_model("Mail", **fields)

    other = App()

    def send(mail: Any) -> Any:  # noqa: ANN401
        return mail

    send.__annotations__ = {"mail": Mail, "return": Mail}
    task = other.task(send)
    made = task.entry(Mail(to="ann", at=NOW)).trigger().payload
    assert json.loads(made.data) == {"to": "ann", "at": "2026-01-01T00:00:00Z"}
    assert Attempt().run(task.function, made.data).value == json.loads(made.data)
    with pytest.raises(TypeError, match="Input should be a valid datetime"):
        task.entry({"to": "ann", "at": "now"})


def test_views_print_well() -> None:
    from raftsched.client import JobInfo, LeaseInfo, RunInfo
    from raftsched.proto.v1 import run_pb2

    job = job_pb2.Job(name="report", namespace="default")
    job.spec.schedules.add().cron.expression = "0 9 * * mon"
    job.status.state, job.status.succeeded = job_pb2.JobStatus.STATE_ACTIVE, 12
    job.status.next_due_time.FromDatetime(NOW)
    assert repr(JobInfo.of(job)) == (
        "<Job report ACTIVE, next Thu 2026-01-01 00:00 UTC, 12 succeeded, 0 failed>"
    )
    assert JobInfo.of(job).schedules == ("cron 0 9 * * mon",)
    run = run_pb2.Run(id="report.1.1", state=run_pb2.RUN_STATE_FAILED, attempt=3)
    run.end_time.FromDatetime(NOW)
    run.error.kind, run.error.message = "ValueError", "no"
    assert repr(RunInfo.of(run)) == "<Run report.1.1 FAILED, attempt 3, ValueError: no>"
    assert RunInfo.of(run).ended
    lease = Lease(run="report.1.1", attempt=1, max_attempts=4)
    assert repr(LeaseInfo.of(lease)) == "<Lease report.1.1 attempt 1 of 4>"


def test_what_surrounds_a_call_sees_its_entries() -> None:
    other = App()
    seen = list[str]()

    @other.around_defer
    def tenant(call: DeferCall) -> Iterator[None]:
        seen.extend(entry.task.name for entry in call.entries)
        raise RuntimeError("not today")
        yield

    @other.task
    def work() -> None: ...

    with pytest.raises(RuntimeError, match="not today"):
        work.defer_many_sync([work.entry(), work.entry()])
    assert seen == ["work", "work"]
