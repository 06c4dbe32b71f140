"""The parts of the page that only compute, run by Node.js: they need no browser."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

from raftsched.client.gateway import pages

from .test_browser import node

PARTS = Path(__file__).with_name("page_parts.mjs")


def test_what_the_page_computes_is_right(tmp_path: Path) -> None:
    program, seed = node(), random.randrange(1, 1_000_000)
    # Node.js takes .js files for modules where a package says so; browsers need none.
    folder = tmp_path / "ui"
    for part in ("lib", "vendor"):
        shutil.copytree(pages.HERE / "ui" / part, folder / part)
    (folder / "package.json").write_text('{"type": "module"}')
    command = [program, str(PARTS), str(folder), str(seed)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, f"seed {seed}\n{ran.stderr}"
