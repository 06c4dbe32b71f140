"""What `raftsched bench` and `raftsched chaos` take when nothing is said."""

from __future__ import annotations

import click

from raftsched.chaos.commands.bench import bench
from raftsched.chaos.commands.chaos import chaos

from ..rows import each

EVERY = [
    (f"{group.name} {name}", made)
    for group in (bench, chaos)
    for name, made in group.commands.items()
]


@each(("path", "made"), EVERY)
def test_a_default_is_what_may_be_typed(path: str, made: click.Command) -> None:
    for option in made.params:
        if isinstance(option, click.Option) and isinstance(option.default, str | int | float):
            # Raises BadParameter for what is out of its range.
            option.type.convert(option.default, option, None)
