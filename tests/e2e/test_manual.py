"""The manual is true: every command and every snippet of it is run, on a real cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from itertools import count
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from raftsched.client import Client
from raftsched.client.testing import wait_until

from .manual import ENDS_S, Fence, Shell, differs, fences, options_of, typed

ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "docs" / "manual"
PAGES = sorted(MANUAL.glob("*.md"))
READY_S = 60.0
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# The addresses that the pages name, as `raftsched dev` prints them where its ports are free.
NODES, GATEWAY = (7400, 7401, 7402), 7430
_STARTS = count(os.getpid())


@dataclass
class Cluster:
    ports: dict[str, str]

    def here(self, text: str) -> str:
        """With the ports of this cluster instead of those that the page names."""
        return re.sub(r"127\.0\.0\.1:\d+", lambda found: self.ports.get(found[0], found[0]), text)


@contextmanager
def started(
    command: Sequence[str], environment: dict[str, str] | None = None, shows: str = ""
) -> Iterator[Cluster]:
    """What a reader has who has typed `raftsched dev`."""
    # Each from another port on: others that begin at this moment see the same ones free.
    ports = ["dev", "--port", str(10_000 + next(_STARTS) % 200 * 100)]
    process = subprocess.Popen(
        [*command, *ports], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        seen: list[str] = []
        until = time.monotonic() + READY_S
        while not any("In another terminal" in line for line in seen):
            line = process.stdout.readline()
            assert line, "\n".join(seen)
            assert time.monotonic() < until, "\n".join(seen)
            seen.append(line)
        text = "".join(seen)
        assert shows in text
        nodes = re.findall(r"n\d\s+(127\.0\.0\.1:\d+)", text)
        page = re.findall(r"http://(127\.0\.0\.1:\d+)/\s", text)[-1]
        named = [f"127.0.0.1:{port}" for port in NODES]
        yield Cluster({**dict(zip(named, nodes, strict=True)), f"127.0.0.1:{GATEWAY}": page})
    finally:
        process.terminate()
        process.communicate(timeout=READY_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    main = "from raftsched.client.cli import main; main()"
    with started([sys.executable, "-c", main]) as cluster:
        yield cluster


@dataclass
class Reader:
    """Who does what a page says, in a folder of their own."""

    page: Path
    cluster: Cluster
    folder: Path
    python: Path

    @property
    def environment(self) -> dict[str, str]:
        endpoints = ",".join(f"127.0.0.1:{port}" for port in NODES)
        return {
            **plain(self.folder, self.python),
            "RAFTSCHED_ENDPOINTS": self.cluster.here(endpoints), "RAFTSCHED_NAMESPACE": "default",
        }  # fmt: skip

    def read(self) -> list[str]:
        """From top to bottom; what was left out since it is not installed."""
        left_out: dict[str, None] = {}
        shell = Shell(self.folder, self.environment)
        try:
            for fence in fences(self.page.read_text()):
                if fence.missing:
                    left_out |= dict.fromkeys(fence.missing)
                else:
                    self._do(fence, shell)
        finally:
            shell.close()
        return [*left_out]

    def _do(self, fence: Fence, shell: Shell) -> None:
        text = self.cluster.here("\n".join(fence.lines) + "\n")
        if fence.file:
            path = self.folder / fence.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif fence.language == "python":
            done = subprocess.run(
                [self.python, "-c", text], cwd=self.folder, env=self.environment, timeout=ENDS_S,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{self.page.name}:{fence.at}:\n{done.stdout}"
        elif fence.language == "console" and "elsewhere" not in fence.words:
            self._type(fence, shell)

    def _type(self, fence: Fence, shell: Shell) -> None:
        lines = typed(fence)
        for each in lines:
            code, printed = shell.run(self.cluster.here(each.command))
            fails = "fails" in fence.words and each is lines[-1]
            where = f"{self.page.name}:{each.at}: {each.command}\n{printed}"
            assert (code != 0) == fails, f"{where}\nended with {code}"
            missing = differs([self.cluster.here(line) for line in each.printed], printed)
            assert not missing, f"{where}\nnot as the page says: {missing}"


def plain(folder: Path, python: Path) -> dict[str, str]:
    """The environment of somebody who has nothing set, on a terminal of 80 columns."""
    paths = [one for one in os.environ["PATH"].split(os.pathsep) if not one.startswith(str(ROOT))]
    return {
        "PATH": os.pathsep.join([str(python.parent), *paths]), "HOME": str(folder),
        "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1", "LANG": "C.UTF-8", "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="raftsched-") as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, cluster: Cluster, folder: Path) -> None:
    reader = Reader(page, cluster, folder, Path(sys.executable))
    forget_apps(reader.environment["RAFTSCHED_ENDPOINTS"])
    left_out = reader.read()
    if left_out:
        pytest.skip(f"the rest holds; not installed, and so not looked at: {', '.join(left_out)}")


def forget_apps(endpoints: str) -> None:
    """Jobs of several pages have the same names, and each page shows its own as the first."""
    names = {name for page in PAGES for name in re.findall(r'App\(name="(.+?)"', page.read_text())}
    with Client(endpoints) as client:
        for text in [f"labels.raftsched-app={name}" for name in sorted(names)]:
            wait_until(partial(_has_none, client, text), what=text)


def _has_none(client: Client, text: str) -> bool:
    # Again and again: one that others come after is refused as long as they are there.
    client.jobs.change_all("delete", text)
    return not any(True for _ in client.jobs.list(text))


@pytest.mark.slow
def test_the_tutorial_is_done_with_the_installed_package_alone(folder: Path) -> None:
    """From the wheel, in a folder that knows nothing of the checkout."""
    python = installed(folder)
    environment = plain(folder, python)
    where = subprocess.check_output(
        [python, "-c", "import raftsched.client as it; print(it.__file__)"],
        cwd=folder, env=environment, text=True,
    )  # fmt: skip
    assert where.startswith(str(folder))
    command, missing = [str(python.with_name("raftsched"))], "pip install 'raftsched[http]'"
    with started(command, environment, shows=missing) as cluster:
        assert Reader(MANUAL / "tutorial.md", cluster, folder, python).read() == []


def installed(folder: Path) -> Path:
    """An environment with the wheel; what that needs is lent, so that no network is."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    python = folder / ".venv" / "bin" / "python"
    install = [*["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"], str(wheel)]
    subprocess.run([str(python), *install], check=True, cwd=folder)
    [site] = (folder / ".venv").glob("lib/python*/site-packages")
    for name in needed_by("raftsched") - {"raftsched"}:
        for path in metadata.files(name) or ():
            link = site / path.parts[0]
            if path.parts[0] != ".." and not link.exists():
                link.symlink_to(Path(str(metadata.distribution(name).locate_file(path.parts[0]))))
    return python


def needed_by(name: str) -> set[str]:
    """With all that these need in turn, and without extras: those nobody has asked for."""
    found, wanted = set[str](), [name]
    while wanted:
        one = wanted.pop()
        if one in found:
            continue
        found.add(one)
        needs = map(Requirement, metadata.requires(one) or ())
        wanted += [
            need.name
            for need in needs
            if need.marker is None or need.marker.evaluate({"extra": ""})
        ]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_runs_elsewhere_can_be_typed(page: Path) -> None:
    from click import Command, Context, Group

    from raftsched.client.cli import main

    for fence in fences(page.read_text()):
        if "elsewhere" not in fence.words:
            continue
        for each in typed(fence):
            if not re.match(r"(sudo )?raftsched ", each.command):
                continue
            names, options = options_of(each.command.removeprefix("sudo "))
            command: Command = main
            context = Context(main)
            for name in names:
                if not isinstance(command, Group):
                    break
                found = command.get_command(context, name)
                assert found is not None, f"{page.name}:{each.at}: no command {name}"
                command = found
            known = {option for one in command.get_params(context) for option in one.opts}
            assert set(options) <= known, f"{page.name}:{each.at}: {set(options) - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_options_that_are_there(page: Path) -> None:
    """Also those between the lines, which nobody types."""
    from click import Command, Context, Group

    from raftsched.client.cli import main

    def known(command: Command) -> Iterator[str]:
        yield from (option for one in command.params for option in one.opts)
        if isinstance(command, Group):
            context = Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from known(inner)

    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    named = {option for code in re.findall(r"`([^`]+)`", prose) for option in OPTION.findall(code)}

    assert named - {"--help"} - set(known(main)) == set()


def test_a_line_of_a_page_allows_other_numbers_and_gaps_only() -> None:
    assert not differs(["at 09:00  3 runs", "…", "done"], "at 12:34 17 runs\nx\ny\ndone")
    assert not differs(["Job … created."], "Job report created.")
    assert differs(["2 runs"], "2 jobs") == "2 runs"
    assert differs(["one", "two"], "one\nx\ntwo") == "two"
    assert differs(["one"], "one\ntwo") == "(more was printed)"
    assert not differs(["one", "…"], "one\ntwo")
    assert not differs([], "anything")
