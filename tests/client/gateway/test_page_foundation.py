"""What the modules of the web page compute, in Node.js; and what keeps its files in order."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

from raftsched.client.gateway.pages import HERE

from ...rows import each
from .test_browser import node

UI = HERE / "ui"
CHECKS = Path(__file__).with_name("foundation.mjs")
OURS = sorted(path for path in UI.rglob("*.js") if "vendor" not in path.parts)
IMPORT = re.compile(r"""(?:from|import|import\()\s*["'](\.[^"'$]+)["']""")
LINES_MAX = 400
DRAWING = UI / "tokens.css"


def test_modules_compute_what_they_should(tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    folder = tmp_path / "ui"
    shutil.copytree(UI, folder)
    # So that Node.js takes the files for modules, as a browser does.
    (folder / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        [node(), CHECKS, folder, str(seed)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"


@each("path", OURS, ids=lambda path: path.relative_to(UI).as_posix())
def test_every_import_is_there_and_no_file_is_long(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LINES_MAX
    for named in IMPORT.findall(text):
        assert (path.parent / named).exists(), f"{named} is not there"


def test_every_page_of_the_registry_has_its_file() -> None:
    named = re.findall(r'of\("([\w-]+)"\)', (UI / "registry.js").read_text())
    assert {f"{name}.js" for name in named} == {path.name for path in (UI / "pages").iterdir()}


def test_every_link_leads_to_a_page() -> None:
    """link("/jobs", …), and link(["/jobs", name, "edit"]) with as many parts."""
    patterns = re.findall(r'\bpath: "([^"]+)"', (UI / "registry.js").read_text())
    parts = re.findall(r'\{ name: "(\w+)"', (UI / "pages" / "settings.js").read_text())
    shapes = [re.sub(r":\w+", "[^/]+", one) for one in patterns]
    settings = {f"/settings/{one}" for one in parts}
    found = set()
    for path in OURS:
        text = path.read_text()
        found |= set(re.findall(r'\blink\("(/[^"]*)"', text))
        for listed in re.findall(r'\blink\(\[("/[^\]\n]+?)\](?:,|\))', text):
            rest = [one if one[0] == '"' else '"-"' for one in listed.split(", ")]
            found.add("/".join(one.strip('"') for one in rest))
    assert len(found) > 10
    wrong = {one for one in found if not any(re.fullmatch(shape, one) for shape in shapes)}
    named = {one for one in found if one.startswith("/settings/") and one != "/settings/-"}
    assert wrong | (named - settings) == set()


def test_nothing_needs_an_exception_from_the_policy() -> None:
    page = (UI / "index.html").read_text()
    assert not re.search(r"https?://|<style|style=|\son\w+=|<script>", page)
    for path in OURS:
        text = path.read_text()
        # Styles are set as properties, which the policy lets through; texts are never made code.
        assert not re.search(r"style=\"|innerHTML|\beval\(|new Function|data:[a-z]+/", text), path


def test_colours_are_named_in_one_place() -> None:
    for path in [*UI.glob("*.css"), *OURS]:
        if path != DRAWING:
            assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![\w-])", path.read_text()), path


def test_colours_of_both_themes_can_be_read() -> None:
    """By WCAG: text against what it stands on has a contrast of 4.5 or more."""
    blocks = re.findall(r"\{([^{}]*--paper[^{}]*)\}", DRAWING.read_text())
    assert len(blocks) == 3
    assert re.sub(r"\s+", " ", blocks[1]).strip() == re.sub(r"\s+", " ", blocks[2]).strip()
    for block in blocks:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for ink in ("ink", "soft", "accent", "ok", "bad", "warn", "run", "wait", "off"):
            for under in ("paper", "raised"):
                assert contrast(colours[ink], colours[under]) >= 4.5, f"{ink} on {under}"
        for ink in ("ok", "bad", "warn", "run", "wait", "off", "accent"):
            assert contrast(colours[ink], colours[f"{ink}-soft"]) >= 4.5, ink
            assert contrast(colours["ink"], colours[f"{ink}-soft"]) >= 4.5, ink
        assert contrast(colours["on-accent"], colours["accent"]) >= 4.5
        assert contrast(colours["paper"], colours["bad"]) >= 4.5
        assert contrast(colours["soft"], colours["sunken"]) >= 4.5


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
