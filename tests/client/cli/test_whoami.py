"""`raftsched whoami`."""

from __future__ import annotations

from ..stage import Stage
from .conftest import Cli


def test_without_tokens_nobody_has_a_name(cli: Cli) -> None:
    shown = cli.ok("whoami").stdout

    assert "You have no name here: the cluster has no access tokens, so all are admins." in shown
    assert "You are admin in all namespaces: " in shown
    assert "hidden" not in shown


def test_a_viewer_is_shown_what_is_open(cli: Cli, stage: Stage) -> None:
    stage.views = True

    shown = cli.ok("whoami", "--calls").stdout

    assert "You are look, by an access token." in shown
    assert "You are viewer in namespace default: " in shown
    assert "  JobService/ListJobs\n" in shown
    assert "JobService/CreateJob" not in shown
    assert "hidden from you" in shown
    assert "This ends 2027-01-15" in shown


def test_a_program_reads_the_message(cli: Cli, stage: Stage) -> None:
    stage.views = True

    got = cli.json("whoami")

    assert got["name"] == "look"
    assert got["grants"][0]["role"] == "ROLE_VIEWER"
