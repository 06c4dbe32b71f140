"""The documents at the top and in the folders: there, short, and with links that lead somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .rows import each

ROOT = Path(__file__).parent.parent
FOLDERS = ["proto", "cluster", "statemachine", "client", "chaos", "tests", "deploy"]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for f in (*FOLDERS, "docs") for path in (ROOT / f).rglob("*.md"))]
)
README_LINES_MAX = 150
DESIGN_LINES_MAX, COLUMNS_MAX = 150, 100
DESIGNS = [path for path in DOCUMENTS if path.name == "DESIGN.md"]
# Every file and name in these stands in the code.
CHECKED = [ROOT / "statemachine" / name for name in ("DESIGN.md", "READING.md", "COSTS.md")]


# Still being written. Whoever adds one takes its folder off this list.
OWED: set[str] = set()


@each("folder", sorted({*FOLDERS} - OWED))
def test_a_folder_says_why_it_is_so(folder: str) -> None:
    assert (ROOT / folder / "DESIGN.md").exists()


def in_documents(pattern: str) -> Iterator[tuple[Path, str]]:
    for path in DOCUMENTS:
        yield from ((path, found) for found in re.findall(pattern, path.read_text()))


def test_every_link_leads_somewhere() -> None:
    promised = {f"{folder}/DESIGN.md" for folder in OWED}

    lost = [
        (str(path.relative_to(ROOT)), target)
        for path, target in in_documents(r"\]\(([^)#:]+)\)")
        if target not in promised and not (path.parent / target).exists()
    ]

    assert lost == []


def test_no_document_names_a_place_on_somebodys_machine() -> None:
    assert [*in_documents(r"/(?:home|root|tmp|Users|work)/\S*")] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < README_LINES_MAX


def test_a_design_is_read_in_minutes() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in DESIGNS}

    assert {name: count for name, count in lines.items() if count > DESIGN_LINES_MAX} == {}


def test_a_document_fits_a_screen() -> None:
    wide = [
        (str(path.relative_to(ROOT)), line)
        for path in {*DESIGNS, *CHECKED}
        for line in path.read_text().splitlines()
        if len(line) > COLUMNS_MAX
    ]

    assert wide == []


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.name)
def test_a_document_names_what_is_there(path: Path) -> None:
    assert [name for name in names_in(path.read_text()) if not is_there(path.parent, name)] == []


@each("name", ["gone.py", "runs/gone.py", "gone", "machine.gone", "View.gone", "gone.decide"])
def test_a_name_that_is_gone_is_found(name: str) -> None:
    assert names_in(f"First `{name}`, then `python -m this` and `1`.") == [name]
    assert not is_there(ROOT / "statemachine", name)


def names_in(text: str) -> list[str]:
    """What looks like a file or a name of the code between backticks."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.findall(r"`((?:[a-z_]+/)*[A-Za-z_]\w+(?:\.\w+)*/?)`", text)


def is_there(folder: Path, name: str) -> bool:
    if name.endswith(("/", ".py", ".md")):
        return (ROOT / name).exists() or any(folder.rglob(name))
    owner, _, last = name.rpartition(".")
    return last in defined(folder).get(owner, ())


@cache
def defined(folder: Path) -> dict[str, set[str]]:
    """The names that a folder's code defines: by module, by class, and all under ""."""
    found: dict[str, set[str]] = {"": set()}
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text())
        found.setdefault(path.stem, set()).update(bound(tree))
        found[""] |= {path.stem, path.parent.name}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(bound(node))
    for names in list(found.values()):
        found[""] |= names
    return found


def bound(node: ast.AST) -> Iterator[str]:
    """The names of functions, classes, attributes and variables of a module or class."""
    for inner in ast.iter_child_nodes(node):
        is_function = isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield inner.name
        for deeper in () if isinstance(inner, ast.ClassDef) else ast.walk(inner):
            match deeper:
                case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
                    yield name
                case ast.Name(id=name, ctx=ast.Store()) if not is_function:
                    yield name
