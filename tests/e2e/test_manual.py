"""The manual is true: every command and every snippet of it is run, on a real cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .manual import ENDS_S, Fence, Shell, differs, fences, options_of, typed

MANUAL = Path(__file__).parents[2] / "docs" / "manual"
PAGES = sorted(MANUAL.glob("*.md"))
READY_S = 60.0
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# The addresses that the pages name, as `raftsched dev` prints them where its ports are free.
NODES, GATEWAY = (7400, 7401, 7402), 7430


@dataclass
class Cluster:
    ports: dict[str, str]

    def here(self, text: str) -> str:
        """With the ports of this cluster instead of those that the page names."""
        return re.sub(r"127\.0\.0\.1:\d+", lambda found: self.ports.get(found[0], found[0]), text)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """What a reader has who has typed `raftsched dev`."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from raftsched.client.cli import main; main()", "dev"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        seen: list[str] = []
        until = time.monotonic() + READY_S
        while not any("Web page" in line for line in seen):
            line = process.stdout.readline()
            assert line, "\n".join(seen)
            assert time.monotonic() < until, "\n".join(seen)
            seen.append(line)
        text = "".join(seen)
        nodes = re.findall(r"n\d\s+(127\.0\.0\.1:\d+)", text)
        page = re.findall(r"http://(127\.0\.0\.1:\d+)/\s", text)[-1]
        named = [f"127.0.0.1:{port}" for port in NODES]
        yield Cluster({**dict(zip(named, nodes, strict=True)), f"127.0.0.1:{GATEWAY}": page})
    finally:
        process.terminate()
        process.communicate(timeout=READY_S)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, cluster: Cluster) -> None:
    with tempfile.TemporaryDirectory(prefix="raftsched-") as name:
        folder = Path(name)
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": name,
            "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1", "LANG": "C.UTF-8",
            "TZ": "UTC", "PYTHONUNBUFFERED": "1",
            "RAFTSCHED_ENDPOINTS": cluster.here(",".join(f"127.0.0.1:{port}" for port in NODES)),
            "RAFTSCHED_NAMESPACE": "default",
        }  # fmt: skip
        shell = Shell(folder, environment)
        try:
            for fence in fences(page.read_text()):
                do(fence, cluster, shell, folder, environment, page.name)
        finally:
            shell.close()


def do(
    fence: Fence, cluster: Cluster, shell: Shell, folder: Path, environment: dict[str, str],
    page: str,
) -> None:  # fmt: skip
    text = cluster.here("\n".join(fence.lines) + "\n")
    if fence.file:
        path = folder / fence.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    elif fence.language == "python":
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=folder, env=environment, timeout=ENDS_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{page}:{fence.at}:\n{done.stdout}"
    elif fence.language == "console" and "elsewhere" not in fence.words:
        lines = typed(fence)
        for each in lines:
            code, printed = shell.run(cluster.here(each.command))
            fails = "fails" in fence.words and each is lines[-1]
            where = f"{page}:{each.at}: {each.command}\n{printed}"
            assert (code != 0) == fails, f"{where}\nended with {code}"
            missing = differs([cluster.here(line) for line in each.printed], printed)
            assert not missing, f"{where}\nnot as the page says: {missing}"


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
