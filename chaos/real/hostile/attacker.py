"""The process of one attack: `python -m raftsched.chaos.real.hostile.attacker GIVEN FOUND`.

It gives way to every other process of the machine, since a real attacker has its own.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import traceback
from pathlib import Path

import msgspec

from . import table
from .brief import AttackBrief, AttackFindings
from .field import AttackNotPlayed, HostileCaller

NICE = 19


async def play(brief: AttackBrief) -> AttackFindings:
    """Play it to its end, or until it is broken off."""
    field = HostileCaller(brief)
    attack = table.ATTACKS[brief.name]
    assert attack.call is not None, f"{brief.name} is nothing that a caller does"
    await field.start()
    try:
        async with asyncio.timeout(brief.limit):
            await attack.call(field)
    except TimeoutError:
        field.wrong(f"the attack was broken off after {brief.limit:.0f} s")
    except AttackNotPlayed as error:
        field.wrong(f"it could not be played: {error}")
    finally:
        await field.stop()
    if field.hellos and not field.heard:
        field.wrong(f"of {field.hellos} hellos none was heard by a node that leads")
    return field.found


def main() -> None:
    brief_path, found_path = map(Path, sys.argv[1:])
    os.nice(NICE)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    brief = msgspec.json.decode(brief_path.read_bytes(), type=AttackBrief)
    try:
        found = asyncio.run(play(brief))
    except Exception as error:
        # The attack itself is wrong, which must not be taken for a cluster that held.
        traceback.print_exc()
        found = AttackFindings(wrong=[f"the attack failed: {type(error).__name__}: {error}"])
    found_path.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
