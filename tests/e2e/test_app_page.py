"""docs/app.md, from the top to the end: its files are written, its programs and commands are run.

Above a block stands what it is: `file: NAME`, `script` (a program), `background` (a command that
goes on). Of a console, what follows a command must be what it prints, in order; `…` is anything.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from raftsched.client.testing import LocalCluster, wait_until

ROOT = Path(__file__).parents[2]
CELERY = ROOT / "docs" / "celery"
PAGE = (ROOT / "docs" / "app.md").read_text()
BLOCK = re.compile(r"((?:<!-- [^\n]* -->\n)*)```(\w+)\n(.*?)```\n", re.DOTALL)
COMMAND_S = 100.0
MAIN = "from raftsched.client.cli import main; main(prog_name='raftsched')"
DJANGO = {
    "manage.py": "import os\nfrom django.core.management import execute_from_command_line\n"
    "os.environ['DJANGO_SETTINGS_MODULE'] = 'mysite.settings'\nimport sys\n"
    "execute_from_command_line(sys.argv)\n",
    "mysite/__init__.py": "",
    "mysite/management/__init__.py": "",
    "mysite/management/commands/__init__.py": "",
    "mysite/settings.py": "SECRET_KEY = 'x'\nINSTALLED_APPS = ['mysite']\nUSE_TZ = True\n"
    "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'db.sqlite3'}}\n",
    "sign_up.py": "import os\nos.environ['DJANGO_SETTINGS_MODULE'] = 'mysite.settings'\n"
    "import django\ndjango.setup()\nfrom mysite.accounts import sign_up\nsign_up('ben')\n"
    "try:\n    sign_up('eve', fails=True)\nexcept RuntimeError as error:\n    print(error)\n",
}


@dataclass(frozen=True)
class Block:
    """A block of the page, with what stands above it."""

    marks: dict[str, str]
    kind: str
    text: str

    @property
    def missing(self) -> list[str]:
        needs = [one.strip() for one in self.marks.get("needs", "").split(",") if one]
        return [one for one in needs if importlib.util.find_spec(one) is None]


def blocks() -> list[Block]:
    found = []
    for above, kind, text in BLOCK.findall(PAGE):
        marks = re.findall(r"<!-- (\w+)(?:: (.*))? -->", above)
        found.append(Block(dict(marks), kind, text))
    return found


@dataclass
class Place:
    """A folder with a cluster beside it."""

    folder: Path
    env: dict[str, str]
    stack: ExitStack

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=COMMAND_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def console(self, text: str) -> None:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, wanted = part.partition("\n")
            printed = self.run(*self.words(command))
            pattern = ".*".join(re.escape(one.strip()) for one in re.split("…|\n", wanted) if one)
            assert re.search(pattern, printed, re.DOTALL), f"{command} printed:\n{printed}"

    def background(self, text: str) -> None:
        [line] = text.strip().splitlines()
        with (self.folder / "background.log").open("w") as log:
            process = subprocess.Popen(
                self.words(line.removeprefix("$ ")), cwd=self.folder, env=self.env, stdout=log,
                stderr=log,
            )  # fmt: skip
        self.stack.callback(process.wait, COMMAND_S)
        self.stack.callback(process.terminate)

    def words(self, command: str) -> list[str]:
        words = command.split()
        if words[0] == "raftsched":
            return [sys.executable, "-c", MAIN, *words[1:]]
        return [sys.executable if words[0] == "python" else words[0], *words[1:]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@contextmanager
def place(cluster: LocalCluster, folder: Path) -> Iterator[Place]:
    env = {
        **os.environ, "RAFTSCHED_ENDPOINTS": ",".join(cluster.endpoints), "COLUMNS": "100",
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / '.src'}", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    with ExitStack() as stack:
        yield Place(folder, env, stack)


@pytest.mark.slow
def test_the_page_is_true_from_the_top_to_the_end(cluster: LocalCluster, tmp_path: Path) -> None:
    left_out: dict[str, None] = {}
    with place(cluster, tmp_path) as here:
        for block in blocks():
            if block.missing:
                left_out |= dict.fromkeys(block.missing)
            elif "file" in block.marks:
                here.write(block.marks["file"], block.text)
            elif "script" in block.marks:
                here.write("script.py", block.text)
                here.run(sys.executable, "script.py")
            elif "background" in block.marks:
                here.background(block.text)
            elif block.kind == "console":
                here.console(block.text)
        if importlib.util.find_spec("django") is not None:
            sign_up_in_django(cluster, here)
    if left_out:
        pytest.skip(f"the rest holds; not installed, and so not looked at: {', '.join(left_out)}")


def sign_up_in_django(cluster: LocalCluster, here: Place) -> None:
    for name, text in DJANGO.items():
        here.write(name, text)
    here.background("$ python manage.py work")
    with cluster.client() as client:
        wait_until(lambda: any(True for _ in client.jobs.list("name=welcome")), what="the worker")
        assert "rolled back" in here.run(sys.executable, "sign_up.py")
        [run] = client.jobs.history("welcome")
        assert run.result(timeout=60) == "welcome, ben"


def test_the_page_shows_how_a_celery_app_moves() -> None:
    before, after = ((CELERY / name).read_text() for name in ("shop_celery.py", "shop_app.py"))
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "shop_celery.py", "shop_app.py", lineterm="", n=1
    )
    [shown] = [block.text for block in blocks() if block.kind == "diff"]

    assert shown.splitlines() == [*lines]


@pytest.mark.slow
def test_the_example_of_the_readme_runs(cluster: LocalCluster, tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with place(cluster, tmp_path) as here, cluster.client() as client:
        here.write("reports.py", example)
        here.background("$ python reports.py")
        wait_until(lambda: any(True for _ in client.jobs.list("name=send_report")), what="the job")
        run = client.jobs.trigger("send_report", payload={"to": "Ben"})
        assert run.result(str, timeout=60) == "a report for Ben"


WITH_CELERY = """
import json, shop_celery as shop
shop.app.conf.task_always_eager = True
answer = shop.order_placed(7, "ann", ["a", "b"])
for task in (shop.note_visit, shop.index, shop.clean_up, shop.report):
    task.delay(*{"note_visit": ["/"], "index": [1], "report": ["anna"]}.get(task.__name__, []))
print(json.dumps([answer, shop.fetch_rates.delay("today").get(), sorted(shop.done)]))
"""


@pytest.mark.slow
def test_the_other_apps_of_the_page_do_what_it_says(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for block in blocks():
        if block.marks.get("file") in ("sealed.py", "audited.py"):
            (tmp_path / block.marks["file"]).write_text(block.text)
    sealed, audited = importlib.import_module("sealed"), importlib.import_module("audited")
    with cluster.work(sealed.app):
        run = sealed.whisper.defer_sync("psst")
        assert run.result(timeout=60) == "PSST"
        with cluster.client() as client:
            held = client.runs.get(run.id).message
        assert held.payload.content_type == held.result.content_type == sealed.SEALED
    with cluster.work(audited.app):
        assert audited.write.defer_sync("a row").result(timeout=60) == "acme"
    assert audited.Database.rows == ["a row"]


@pytest.mark.slow
def test_the_app_that_was_moved_does_what_it_did_with_celery(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("celery", reason="celery is not installed")
    with place(cluster, tmp_path) as here:
        here.write("shop_celery.py", (CELERY / "shop_celery.py").read_text())
        before = json.loads(here.run(sys.executable, "-c", WITH_CELERY))
    monkeypatch.syspath_prepend(str(CELERY))
    shop = importlib.import_module("shop_app")
    with cluster.client() as client:
        # Other apps of the page have jobs of these names.
        client.namespaces.create("celery")
    shop.app.work_in("celery")
    with cluster.work(shop.app):
        answer = shop.order_placed(7, "ann", ["a", "b"])
        shop.note_visit.defer_sync("/")
        shop.index.defer_sync(1)
        shop.clean_up.defer_sync()
        shop.report.defer_sync("anna")
        rates = shop.fetch_rates.defer_sync("today").result(timeout=60)
        wait_until(lambda: len(shop.done) == len(before[2]), what="the last of them")

    assert json.loads(json.dumps([answer, rates, sorted(shop.done)])) == before
