"""`raftsched job init` and `raftsched job schema`: a job to begin with, and what may be in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ..exits import Exit, Trouble, reason_of, wrong_use
from ..options import command
from ..render.clean import echo, json_of
from ..session import Invocation

# A value for each word, as YAML. Those of LIVE are there, the others are comments.
LIVE = ("handler", "cron")
VALUES = {
    "handler": "build-report",
    "http": "GET https://example.org/health",
    "headers": "{Accept: text/plain}",
    "expect_status": "[200, 404]",
    "shell": "find /var/tmp -mtime +7 -delete",
    "use_shell": "true",
    "env": "{TZ: UTC}",
    "warn_on_exit": "[3]",
    "grpc": "localhost:50051/billing.Invoices/Send",
    "tls": "true",
    "cron": '"0 9 * * mon-fri"',
    "every": "5m",
    "at": "2026-12-24T09:00:00Z",
    "after_end": "10m",
    "after": '[extract, "clean:any-end"]',
    "payload": "{day: monday}",
    "content_type": "application/json",
    "zone": "Europe/Berlin",
    "queue": "mail",
    "priority": "high",
    "labels": "{team: billing}",
    "owner": "ann",
    "description": "The figures of the day before.",
    "jitter": "30s",
    "start": "2026-12-01T00:00:00Z",
    "end": "2027-01-01T00:00:00Z",
    "max_runs": "10",
    "gap": "skip",
    "fold": "both",
    "exclude_calendar": "holidays",
    "misfire": "all",
    "misfire_max": "10",
    "grace": "5m",
    "start_deadline": "1h",
    "overlap": "queue-one",
    "overlap_limit": "2",
    "max_attempts": "5",
    "retry_first": "10s",
    "retry_cap": "1h",
    "retry_factor": "150",
    "retry_jitter": "0",
    "retry_total": "6h",
    "fatal": "[BadAmount]",
    "attempt_timeout": "5m",
    "run_timeout": "1h",
    "queue_timeout": "30m",
    "heartbeat_timeout": "1m",
    "concurrency": "1",
    "concurrency_key": "payload.customer",
    "key_limit": "1",
    "delivery": "at-most-once",
    "worker_labels": '{gpu: "yes"}',
    "join": "any",
    "stuck_after": "12h",
    "keep_history": "30d",
    "delete_after": "7d",
    "pause_on_failure": "5",
    "on_failure": "notify",
}
# Where a file does not mean what the option does.
HELP = {"at": "It runs once, at this time, in UTC if it names no zone; in the past means now."}
HEAD = """\
# A job of raftsched. Each word is an option of `raftsched job create`, and what
# is a comment is not set. For an editor that knows JSON schemas:
#   raftsched job schema > job.schema.json
# yaml-language-server: $schema=./job.schema.json
"""
WIDTH = 80


@command(
    None, "init",
    "raftsched job init report > report.yaml",
    "raftsched job init report --to report.yaml && raftsched job apply -f report.yaml",
)  # fmt: skip
@click.argument("name", default="report", metavar="[NAME]")
@click.option("--to", "path", metavar="FILE", help="A new file to write.  [stdout]")
def init(session: Invocation, name: str, path: str | None) -> None:
    """Write a job to begin with as YAML: all that may stand in one, and what it means."""
    text = "".join(f"{line}\n" for line in lines(name))
    if path is None:
        echo(text, nl=False)
        return
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Trouble(
            f"{path} is there already", "nothing was written",
            f"raftsched job init {name} --to OTHER.yaml", Exit.CONFLICT,
        ) from None  # fmt: skip
    except OSError as wrong:
        raise wrong_use(f"cannot write {path}", reason_of(wrong), "--to FILE") from wrong
    session.say(f"{path} written.", then=f"raftsched job apply -f {path} --dry-run")


@command(None, "schema", "raftsched job schema > job.schema.json")
def schema(session: Invocation) -> None:
    """Print the JSON schema of jobs in files, for editors and other programs."""
    from ..input import schema as made

    echo(json_of(made.schema(), indent=2))


def lines(name: str) -> Iterator[str]:
    """The file, line by line."""
    import textwrap

    import yaml

    from ..input import flat

    yield from HEAD.splitlines()
    yield yaml.safe_dump({"name": name}).strip()
    for word, option in flat.options().items():
        shown = flat.SINGULARS.get(word, word)
        yield ""
        several = "may be a table" if option.metavar in flat.MARKS else "may be a list"
        text = HELP.get(word, option.help or "")
        help_text = flat.in_words(text).replace("can be repeated", several)
        if isinstance(option.type, click.Choice):
            help_text += f" One of {', '.join(option.type.choices)}."
        for line in textwrap.wrap(help_text, WIDTH - 2, break_on_hyphens=False):
            yield f"# {line}"
        yield f"{'' if word in LIVE else '#'}{shown}: {VALUES[shown]}"
