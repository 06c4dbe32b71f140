"""`raftsched completion`: the script that makes a shell complete our commands and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ..options import Command

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": "echo 'source <(raftsched completion bash)' >> ~/.bashrc",
    "zsh": "echo 'source <(raftsched completion zsh)' >> ~/.zshrc",
    "fish": "raftsched completion fish > ~/.config/fish/completions/raftsched.fish",
}


@click.command(cls=Command, shared=[])
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    It completes commands, options and the names of jobs, queues and more, which it asks the
    cluster for; a cluster that does not answer in 300 ms is passed over in silence.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root()
    click.echo(kind(root.command, {}, "raftsched", "_RAFTSCHED_COMPLETE").source())


completion.examples = tuple(HOW.values())
