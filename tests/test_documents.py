"""The documents at the top and in the folders: there, short, and with links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ["proto", "cluster", "statemachine", "client", "chaos", "tests"]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for f in FOLDERS for path in (ROOT / f).glob("*.md"))]
)
README_LINES_MAX = 150


# Still being written. Whoever adds one takes its folder off this list.
OWED: set[str] = set()


@pytest.mark.parametrize("folder", sorted({*FOLDERS} - OWED))
def test_a_folder_says_why_it_is_so(folder: str) -> None:
    assert (ROOT / folder / "DESIGN.md").exists()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    promised = {f"{folder}/DESIGN.md" for folder in OWED}

    assert [t for t in targets if t not in promised and not (path.parent / t).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_names_a_place_on_somebodys_machine(path: Path) -> None:
    assert re.findall(r"/(?:home|root|tmp|Users|work)/\S*", path.read_text()) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < README_LINES_MAX
