"""What runs warn of, their order, what a failure triggers; and when tokens were last used."""

from __future__ import annotations

from raftsched.client.cli.render.formats import ValueFormats, warned
from raftsched.proto.v1 import access_pb2, options_pb2
from raftsched.statemachine.model.request import CreateToken, NoteUses

from ...statemachine.driver import warn_all
from .conftest import Cli


def test_a_run_that_warns_is_marked_for_people_and_found_by_a_filter(cli: Cli) -> None:
    cli.ok("job", "create", "plain", "--handler", "build")
    cli.ok("job", "create", "rows", "--handler", "build")
    for name in ("plain", "rows"):
        cli.ok("job", "trigger", name)
        warning = "3 rows had no address" if name == "rows" else ""
        cli.stage.act(lambda machine, text=warning: warn_all(machine, text))  # type: ignore[misc]

    titles, *rows = cli.rows("run", "list", "--filter", 'state=SUCCEEDED AND warning!=""')
    [row] = rows
    shown = dict(zip(titles, row, strict=True))
    assert (shown["STATE"], shown["ERROR"]) == ("succeeded", "3 rows had no address")
    titles, plain, rows_ = cli.rows("job", "list", "-o", "wide")
    wide = dict(zip(titles, rows_, strict=True))
    assert (wide["LAST"], wide["WARNED"]) == ("succeeded", "1")
    assert wide["NOTE"] == "the last run warns: 3 rows had no address"
    assert plain[titles.index("WARNED")] == "0"
    for exact, text in ((False, "succeeded ▲"), (True, "succeeded")):
        assert str(warned("succeeded", "look", ValueFormats("utc", exact))) == text
    assert str(warned("succeeded", "", ValueFormats("utc", exact=False))) == "succeeded"


def test_runs_are_listed_in_an_order_or_told_which_there_is(cli: Cli) -> None:
    cli.ok("job", "create", "a", "--handler", "build", "--overlap", "allow")
    for _ in range(2):
        cli.stage.act(lambda machine: machine.advance(1))
        cli.ok("job", "trigger", "a")

    first = cli.rows("run", "list", "--order-by", "scheduled_time", "--no-headers")
    last = cli.rows("run", "list", "--order-by", "scheduled_time desc", "--no-headers")
    assert [row[0] for row in first] == [row[0] for row in last][::-1]
    refused = cli("run", "list", "--order-by", "end_time")
    assert "only dead letters lie in that order; add state=FAILED to the filter" in refused.output


def test_tokens_say_when_they_were_last_used(cli: Cli) -> None:
    token = access_pb2.AccessToken(name="root", role=options_pb2.ROLE_ADMIN)
    asked = access_pb2.CreateAccessTokenRequest(access_token=token)
    cli.stage.act(lambda machine: machine.do(CreateToken(asked, bytes(32))))
    cli.stage.act(lambda machine: machine.do(NoteUses(("root",))))

    titles, root = cli.rows("token", "list")
    assert root[titles.index("LAST USED")] == "2026-01-01T00:00:00Z"


def test_a_graph_shows_what_a_failure_triggers(cli: Cli) -> None:
    cli.ok("job", "create", "cleanup", "--handler", "build")
    cli.ok("job", "create", "report", "--handler", "build", "--on-failure", "cleanup")

    titles, edge = cli.rows("flow", "graph", "report", "-o", "wide")
    shown = dict(zip(titles, edge, strict=True))
    assert (shown["UPSTREAM"], shown["DOWNSTREAM"], shown["HOW"]) == (
        "report", "cleanup", "triggers",
    )  # fmt: skip
