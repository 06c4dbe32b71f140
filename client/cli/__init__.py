"""The `raftsched` command.

It must answer `--help` at once, so nothing here may import gRPC or RocksDB before a sub-command
needs it; `tests/client/test_cli.py` holds that.
"""

from __future__ import annotations

from importlib import metadata

import click

EPILOG = "Documentation: README.md of the source, and the comments of the .proto files."


@click.group(
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "RAFTSCHED"},
)
@click.version_option(metadata.version("raftsched"), "--version", "-V", prog_name="raftsched")
def main() -> None:
    """Schedule jobs on a Raft cluster: nothing lost, nothing doubled, no database beside it."""
