"""What a node says of itself, and that saying it stops nothing."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
import structlog

from raftsched.cluster.ops import log
from raftsched.cluster.ops.config import LogSection


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The library's logging is one for the whole process."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    yield
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)
    structlog.reset_defaults()


def said(settings: LogSection, speak: object) -> list[str]:
    stream = io.StringIO()
    writer, context = log.start(settings, "n1", stream)
    context.follow(lambda: 7)
    assert callable(speak)
    speak()
    writer.stop()
    return stream.getvalue().splitlines()


def test_a_line_is_json_with_node_term_and_what_was_said() -> None:
    lines = said(
        LogSection(),
        lambda: structlog.get_logger("x").warning("lease lapsed", job="a", run="r", token=3),
    )

    [line] = [json.loads(text) for text in lines]
    assert list(line) == ["ts", "level", "node", "term", "event", "job", "run", "token"]
    assert (line["node"], line["term"], line["event"]) == ("n1", 7, "lease lapsed")
    assert (line["level"], line["token"]) == ("warning", 3)


def test_the_library_logging_goes_the_same_way() -> None:
    def speak() -> None:
        logging.getLogger("uvicorn.error").warning("port %d", 80)
        logging.getLogger("raftsched.cluster.x").error("no %s", "disk", extra={"job": "a"})

    lines = [json.loads(text) for text in said(LogSection(), speak)]

    assert [line["event"] for line in lines] == ["port 80", "no disk"]
    assert lines[0]["logger"] == "uvicorn.error"
    assert lines[1]["job"] == "a"
    assert "logger" not in lines[1]
    assert {line["node"] for line in lines} == {"n1"}


def test_an_exception_stays_on_its_line() -> None:
    def speak() -> None:
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("x").exception("broke")

    [line] = said(LogSection(), speak)

    assert "ValueError: why" in json.loads(line)["exception"]


def test_what_is_below_the_level_is_not_said() -> None:
    def speak() -> None:
        structlog.get_logger("x").info("small")
        logging.getLogger("y").info("small")
        logging.getLogger("y").error("large")

    lines = said(LogSection(level="error"), speak)

    assert [json.loads(line)["event"] for line in lines] == ["large"]


def test_the_console_form_is_for_people() -> None:
    [line] = said(
        LogSection(format="console"), lambda: structlog.get_logger().info("leads", run="r")
    )

    assert "leads" in line
    assert "run=r" in line
    assert not line.startswith("{")


def test_words_of_others_do_not_move_the_cursor() -> None:
    [line] = said(
        LogSection(format="console"),
        lambda: structlog.get_logger().info("failed", error="a\x1b[2J\nb"),
    )

    assert "\x1b" not in line
    assert r"a\x1b[2J\nb" in line


def test_a_message_that_repeats_is_held_back_and_counted() -> None:
    now = [0.0]
    restraint = log.Restraint(lambda: now[0])

    def say(words: str) -> logging.LogRecord | None:
        record = logging.LogRecord("x", 20, "", 0, words, ("arg",), None)
        return record if restraint.filter(record) else None

    passed = [say("closed %s") for _ in range(50)]
    other = say("opened %s")
    now[0] = log.PERIOD + 1
    later = say("closed %s")

    assert sum(record is not None for record in passed) == log.BURST
    assert other is not None
    assert later is not None
    assert later.__dict__["left_out"] == 30


class Stuck(io.StringIO):
    """A pipe that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.free.wait(10)
        return super().write(text)


def test_a_pipe_that_nobody_reads_stops_nobody() -> None:
    stream = Stuck()
    writer = log.Writer(stream, lines_max=5)
    logger = logging.Logger("x")
    logger.addHandler(writer)

    for _ in range(20):
        logger.error("words")
    lost = writer.lost
    stream.free.set()
    writer.stop()

    assert 14 <= lost <= 15
    assert stream.getvalue().count("words") == 20 - lost
