"""stdout is data: six formats, nothing else in them, and no colour for programs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from raftsched.statemachine.model.request import SetAside

from ..stage import Stage
from .conftest import Cli
from .test_groups import fail

SRC = Path(__file__).parents[3] / ".src"
RUN = "from raftsched.client.cli import main; main()"


def python(cli: Cli, *words: str) -> tuple[list[str], dict[str, str]]:
    """A process of its own, for what concerns real files and terminals."""
    environment = {**os.environ, **cli.environment, "PYTHONPATH": str(SRC)}
    return [sys.executable, "-c", RUN, *words], environment


@pytest.fixture(autouse=True)
def _jobs(cli: Cli) -> None:
    cli.ok("job", "create", "report", "--cron", "0 9 * * *", "--handler", "build")
    cli.ok("job", "create", "mail", "--every", "90m", "--handler", "send", "--priority", "high")


def test_json_is_the_json_of_the_api(cli: Cli) -> None:
    said = cli.json("job", "get", "mail")

    assert said["spec"]["schedules"] == [{"interval": {"every": "5400s"}}]
    assert said["spec"]["priority"] == "PRIORITY_HIGH"
    assert said["createTime"].endswith("Z")
    assert said["uid"] == "2"


def test_a_list_in_json_is_the_page_that_the_api_answers(cli: Cli) -> None:
    assert [job["name"] for job in cli.json("job", "list")["jobs"]] == ["mail", "report"]


def test_an_empty_list_in_json_still_has_its_field(cli: Cli) -> None:
    assert cli.json("run", "list") == {"runs": []}


def test_jsonl_is_a_line_for_each(cli: Cli) -> None:
    lines = cli.ok("job", "list", "-o", "jsonl").stdout.splitlines()

    assert [json.loads(line)["name"] for line in lines] == ["mail", "report"]


def test_yaml_holds_the_same_as_json(cli: Cli) -> None:
    said = cli.ok("job", "get", "report", "-o", "yaml").stdout

    assert yaml.safe_load(said)["spec"] == cli.json("job", "get", "report")["spec"]


def test_name_is_what_the_next_command_takes(cli: Cli) -> None:
    assert cli.ok("job", "list", "-o", "name").stdout == "mail\nreport\n"


def test_a_table_in_a_pipe_is_tab_separated_and_complete(cli: Cli) -> None:
    titles, mail, report = cli.rows("job", "list")

    assert titles == [
        "NAME",
        "STATE",
        "SCHEDULE",
        "ZONE",
        "NEXT",
        "LAST",
        "RUNNING",
        "WAITING",
        "NOTE",
    ]
    assert mail == ["mail", "active", "every 1h30m", "", "2026-01-01T01:30:00Z", "-", "0", "0", ""]
    assert report[2] == "0 9 * * *"


def test_wide_has_more_columns(cli: Cli) -> None:
    titles, mail, _ = cli.rows("job", "list", "-o", "wide")

    assert mail[titles.index("PRIORITY")] == "high"
    assert mail[titles.index("ACTION")] == "send"


def test_headers_can_be_left_out(cli: Cli) -> None:
    assert cli.rows("job", "list", "--no-headers")[0][0] == "mail"


def test_details_in_a_pipe_are_paths_and_values(cli: Cli) -> None:
    details = dict(cli.rows("job", "get", "report"))

    assert details["spec.action"] == "build"
    assert details["spec.schedules"] == "0 9 * * *"
    assert details["status.next_due_time"] == "2026-01-01T09:00:00Z"


def test_a_limit_is_said_beside_the_data(cli: Cli) -> None:
    said = cli.ok("job", "list", "--limit", "1", "-o", "name")
    table = cli.ok("job", "list", "--limit", "1")

    assert said.stdout == "mail\n"
    assert "There are more: --limit 0 prints all." in table.stderr
    token = cli.json("job", "list", "--limit", "1")["nextPageToken"]
    assert cli.ok("job", "list", "--page-token", token, "-o", "name").stdout == "report\n"


def test_an_empty_table_says_so_on_stderr(cli: Cli) -> None:
    said = cli.ok("run", "list")

    assert said.stdout == ""
    assert said.stderr == "No runs under way; --state succeeded lists others.\n"
    of_job = cli.ok("run", "list", "--job", "report").stderr
    assert of_job == "No runs under way; raftsched job history report lists others.\n"


def test_a_write_tells_people_on_stderr_and_programs_on_stdout(cli: Cli) -> None:
    person = cli.ok("job", "pause", "report", "--reason", "why not")
    program = cli.json("job", "resume", "report")

    assert person.stdout == ""
    assert person.stderr == "Job report paused.\n"
    assert program["status"]["state"] == "STATE_ACTIVE"


def test_several_writes_are_one_document(cli: Cli) -> None:
    both = cli.json("job", "delete", "mail", "report", "--yes")
    names = cli.ok("job", "create", "x", "--handler", "h", "-o", "name").stdout

    assert both == [{}, {}]
    assert names == "x\n"


def test_what_was_done_before_a_refusal_is_still_printed(cli: Cli) -> None:
    cli.ok("job", "trigger", "mail")
    run = cli.ok("run", "list", "-o", "name").stdout.strip()

    said = cli("run", "cancel", run, "nobody.1.2", "-o", "json")

    assert said.exit_code == 3
    assert json.loads(said.stdout)["id"] == run


def test_the_name_of_an_event_is_its_revision(cli: Cli) -> None:
    said = cli.ok("watch", "--since", "oldest", "--no-follow", "-o", "name")

    assert said.stdout == "1.0\n2.0\n"


@pytest.mark.parametrize("close", ["2>&-", "2>/dev/null"])
def test_json_is_whole_without_a_stderr(cli: Cli, close: str) -> None:
    words, environment = python(cli, "job", "list", "-o", "json")

    said = subprocess.run(
        ["bash", "-c", f'"$@" {close}', "bash", *words], env=environment,
        capture_output=True, check=True,
    )  # fmt: skip

    assert [job["name"] for job in json.loads(said.stdout)["jobs"]] == ["mail", "report"]
    assert said.stderr == b""


@pytest.mark.slow
def test_no_socket_takes_the_place_of_a_closed_stderr(cli: Cli) -> None:
    formats = "import atexit, os; atexit.register(lambda: print(os.readlink('/proc/self/fd/2'))); "
    words, environment = python(cli, "job", "list", "-o", "name")
    words[2] = formats + words[2]

    said = subprocess.run(
        ["bash", "-c", '"$@" 2>&-', "bash", *words], env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip

    assert said.stdout.splitlines()[-1] == "/dev/null"


@pytest.mark.slow
def test_an_error_without_a_stderr_still_ends_with_its_code(cli: Cli) -> None:
    words, environment = python(cli, "job", "get", "nobody", "-o", "json")

    said = subprocess.run(
        ["bash", "-c", '"$@" 2>&-', "bash", *words], env=environment, capture_output=True,
        check=False,
    )  # fmt: skip

    assert (said.returncode, said.stdout) == (3, b"")


def test_a_reader_that_leaves_is_no_error_with_a_traceback(cli: Cli) -> None:
    words, environment = python(cli, "job", "list", "-o", "jsonl")

    said = subprocess.run(
        ["bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "bash", *words], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert said.returncode in (0, 141)
    assert said.stderr == ""


def on_terminal(cli: Cli, *words: str, **more: str) -> str:
    """What a person would see."""
    said, code = ended_on_terminal(cli, *words, **more)
    assert code == 0
    return said


def ended_on_terminal(cli: Cli, *words: str, **more: str) -> tuple[str, int]:
    """The same, and the exit code."""
    command, environment = python(cli, *words)
    keeper, terminal = pty.openpty()
    environment |= {"TERM": "xterm-256color", "COLUMNS": "100", **more}
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in more else None
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    said = b""
    while True:
        try:
            piece = os.read(keeper, 65_536)
        except OSError:  # Linux says so when the other side is closed.
            break
        if not piece:
            break
        said += piece
    os.close(keeper)
    return said.decode(), process.wait()


def test_a_terminal_gets_colours_and_a_pipe_none(cli: Cli) -> None:
    cli.ok("job", "pause", "mail")

    assert "\x1b[33mpaused" in on_terminal(cli, "job", "list")
    assert "\x1b" not in cli.ok("job", "list").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "environment"), [(["--color", "never"], {}), ([], {"NO_COLOR": "1"})]
)
def test_nobody_gets_colours_against_his_will(
    cli: Cli, words: list[str], environment: dict[str, str]
) -> None:
    said = on_terminal(cli, "job", "list", *words, **environment)

    assert "\x1b" not in said
    assert "report" in said


def test_colours_can_be_asked_for_in_a_pipe(cli: Cli) -> None:
    said = cli.ok("job", "list", "--color", "always", TERM="xterm-256color").stdout

    assert "\x1b[" in said


@pytest.mark.slow
def test_names_are_whole_on_a_narrow_terminal(cli: Cli) -> None:
    name = "a-name-that-is-longer-than-the-terminal-is-wide-by-far-and-then-some"
    cli.ok("job", "create", name, "--handler", "h")

    said = on_terminal(cli, "job", "list", "-o", "wide", COLUMNS="40")

    assert name in said
    assert "OWNER" not in said  # An empty column is only in the way.


@pytest.mark.slow
def test_what_does_not_fit_a_terminal_stands_on_lines_of_its_own(cli: Cli, stage: Stage) -> None:
    """Words were cut in two by the terminal, and columns without anything in them took room."""
    cli.ok("job", "trigger", "report")
    before = on_terminal(cli, "run", "list", COLUMNS="80", NO_COLOR="1")
    stage.act(lambda machine: machine.advance(1))
    fail(stage)
    said = on_terminal(cli, "run", "list", "--state", "failed", COLUMNS="80", NO_COLOR="1")
    wrong, code = ended_on_terminal(
        cli, "job", "create", "x", "--handler", "h", "--cron", "61 * * * *", COLUMNS="50"
    )

    assert code == 2
    assert "ERROR" not in before
    for text, width in ((before, 80), (said, 80), (wrong.split("Try:")[0], 50)):
        assert max(map(len, text.splitlines())) <= width
    assert "    error: ValueError: " in said
    assert "cannot stand in" in wrong
    assert "raftsched job next 'EXPRESSION'" in wrong


@pytest.mark.slow
def test_events_and_sentences_fit_a_terminal(cli: Cli, stage: Stage) -> None:
    why = "firing failed: ZoneUnknown: the zone America/Coyhaique is not known here, by 2024a"
    stage.act(lambda machine: machine.do(SetAside(machine.jid("report"), why)))

    for words in (("watch", "--since", "oldest", "--no-follow"), ("job", "get", "report")):
        said = on_terminal(cli, *words, COLUMNS="80", NO_COLOR="1")
        assert max(map(len, said.splitlines())) <= 80
        assert why in " ".join(said.split())
