"""No secret of an attempt is in what it says: whole, cut in two, or in another spelling."""

from __future__ import annotations

import base64
import json
import random
import re
from urllib.parse import quote, quote_plus

from raftsched.client.worker.context import Context
from raftsched.client.worker.outcomes import LOG_BYTES_MAX
from raftsched.client.worker.redaction import LINES_MAX, Redaction
from raftsched.client.worker.run_log import RunLog
from raftsched.proto.v1 import common_pb2, run_pb2, worker_pb2

from ...rows import each

VALUE = 'p"ss w/rd+ä&'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"


def test_each_spelling_is_taken_out() -> None:
    redaction = Redaction([VALUE])
    for text in (
        VALUE, json.dumps(VALUE), json.dumps(VALUE, ensure_ascii=False), quote(VALUE, safe=""),
        quote_plus(VALUE), base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ):  # fmt: skip
        said = redaction.text(f"a {text} b")
        assert "(hidden)" in said
        assert said.startswith("a ")
        assert said.endswith(" b")
        assert text.strip('"=') not in said


def test_spellings_of_other_programs_are_taken_out() -> None:
    """An attacker read values in each of these."""
    value = 'p@ss w0rd/C"A\\ND+=&%'
    redaction = Redaction([value])
    for text in (
        quote(value), re.sub("%..", lambda found: found[0].lower(), quote(value, safe="")),
        repr(value)[1:-1], value.encode().hex(), value.encode().hex().upper(),
    ):  # fmt: skip
        assert redaction.text(f"a {text} b") == "a (hidden) b", text


@each("user", ["", "u", "me", "you", "user"])
def test_a_password_inside_of_base64_is_taken_out(user: str) -> None:
    """As in `Authorization: Basic`; at most the two letters at its ends may stay."""
    value = "correct-horse-battery"
    both = base64.b64encode(f"{user}:{value}:x".encode()).decode()
    said = Redaction([value]).text(f"Basic {both}")
    assert "(hidden)" in said
    kept = said.removeprefix("Basic ").partition("(hidden)")
    assert len(kept[0]) <= len(base64.b64encode(f"{user}:".encode())) + 1
    assert len(kept[2]) <= 6


def test_each_line_of_a_key_is_taken_out() -> None:
    said = Redaction([KEY]).text("it says MIIEvQIBADANBgkq, then hkiG9w0BAQEFAASC")
    assert said == "it says (hidden), then (hidden)"


def test_what_is_looked_for_is_bounded() -> None:
    """A worker's loop stands still meanwhile."""
    value = "\n".join(f"line number {number}" for number in range(4_000))
    assert len(Redaction([value])._forms) <= 6 * (LINES_MAX + 1) + 20
    assert Redaction([value]).text(f"a {value} b") == "a (hidden) b"


def test_what_is_short_stays() -> None:
    assert Redaction(["abc", ""]).text("abc") == "abc"
    assert Redaction([]).data(b"x", front=True, end=True) == b"x"


def test_the_longest_goes_first() -> None:
    assert Redaction(["pass", "password"]).text("password pass") == "(hidden) (hidden)"


@each("size", range(3, len(VALUE.encode())))
def test_a_part_at_an_end_is_cut_off(size: int) -> None:
    redaction, data = Redaction([VALUE]), VALUE.encode()
    assert redaction.data(b"a " + data[:size], end=True) == b"a "
    assert redaction.data(data[-size:] + b" b", front=True) == b" b"
    assert redaction.data(b"a " + data + b" b", front=True, end=True) == b"a (hidden) b"


def test_bytes_that_are_counted_keep_their_number() -> None:
    message = worker_pb2.Result(run="r", log_tail=VALUE.encode())
    message.success.result.CopyFrom(
        common_pb2.Payload(data=b"\x0a\x03" + VALUE.encode(), content_type="application/x-protobuf")
    )
    size = len(message.success.result.data)
    Redaction([VALUE]).message(message)
    assert len(message.success.result.data) == size
    assert message.success.result.data == b"\x0a\x03" + b"*" * len(VALUE.encode())
    assert message.log_tail == b"(hidden)"


def test_all_texts_of_a_report_are_looked_at() -> None:
    message = worker_pb2.Result(run="r", token=7)
    message.failure.error.CopyFrom(run_pb2.RunError(kind="k", message=VALUE, trace=f"x{VALUE}y"))
    message.notes.labels["a"] = VALUE
    Redaction([VALUE]).message(message)
    assert VALUE not in str(message)
    assert message.failure.error.trace == "x(hidden)y"
    assert message.notes.labels["a"] == "(hidden)"
    assert (message.run, message.token) == ("r", 7)


class Ear:
    """Hears what a context says."""

    draining = False

    def __init__(self) -> None:
        self.reports: list[worker_pb2.ProgressReport] = []

    def progress(self, report: worker_pb2.ProgressReport) -> None:
        self.reports.append(report)

    def extend(self, request: worker_pb2.ExtendRequest) -> None:
        raise AssertionError(request)

    async def secrets(self, lease: worker_pb2.Lease) -> dict[str, str]:
        return {"a": VALUE}


async def test_progress_and_log_of_an_attempt_show_none() -> None:
    lease = worker_pb2.Lease(run="r", token=1)
    lease.action.http.headers["x"] = "secret://a"
    ear = Ear()
    context = Context(lease, ear)
    await context.fetch_secrets()
    context.log.write(b"before " + VALUE.encode()[:5])
    context.progress(1, 2, f"at {VALUE}")
    context.log.write(VALUE.encode()[5:] + b" after")
    context.checkpoint(f"left {VALUE}".encode())
    first, second = ear.reports
    assert (first.progress.message, first.log_tail) == ("at (hidden)", b"before ")
    assert (second.checkpoint, second.log_tail) == (b"left (hidden)", b"before (hidden) after")
    assert context.log_tail == b"before (hidden) after"


async def test_an_action_without_secrets_asks_for_none() -> None:
    lease = worker_pb2.Lease(run="r", token=1)
    lease.action.http.headers["x"] = "plain"
    context = Context(lease, Ear())
    await context.fetch_secrets()
    assert context.secrets == {}


def test_a_long_log_shows_no_part_of_one_however_it_is_written() -> None:
    """The log is cut again and again while secrets pass."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    secret = "".join(chance.choice("QWXZ") + str(number) for number in range(200))
    log = RunLog(worker_pb2.Lease())
    log.redaction = Redaction([secret])
    stream = b"".join(
        b"x" * chance.randrange(2_000) + secret.encode() for _ in range(200)
    )  # Some 300 KB.
    while stream:
        size = chance.randrange(1, 5_000)
        log.write(stream[:size])
        stream = stream[size:]
        tail = log.tail
        assert len(tail) <= LOG_BYTES_MAX
        bare = tail.replace(b"(hidden)", b"").replace(b"x", b"")
        # A cut "(hidden)" at the front is all that may be left; two bytes of a part are none.
        assert not any(sign in bare for sign in (b"Q1", b"W1", b"X1", b"Z1")), (seed, bare[:80])
