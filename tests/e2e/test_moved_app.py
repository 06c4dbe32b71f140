"""A Celery app of ten tasks that was moved, as docs/manual/app.md shows it; and the README's app.

What else that page says is run by test_manual.py.
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftsched.client.testing import LocalCluster, wait_until

from .manual import ENDS_S, fences

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "manual" / "app.md"
CELERY = PAGE.parent / "celery"
WITH_CELERY = """
import json, shop_celery as shop
shop.app.conf.task_always_eager = True
answer = shop.order_placed(7, "ann", ["a", "b"])
for task in (shop.note_visit, shop.index, shop.clean_up, shop.report):
    task.delay(*{"note_visit": ["/"], "index": [1], "report": ["anna"]}.get(task.__name__, []))
print(json.dumps([answer, shop.fetch_rates.delay("today").get(), sorted(shop.done)]))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


def test_the_page_shows_how_a_celery_app_moves() -> None:
    before, after = ((CELERY / name).read_text() for name in ("shop_celery.py", "shop_app.py"))
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "shop_celery.py", "shop_app.py", lineterm="", n=1
    )
    [shown] = [fence for fence in fences(PAGE.read_text()) if fence.language == "diff"]

    assert shown.lines == [*lines]


@pytest.mark.slow
def test_the_app_that_was_moved_does_what_it_did_with_celery(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("celery", reason="celery is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITH_CELERY], cwd=CELERY, capture_output=True,
        text=True, timeout=ENDS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before = json.loads(done.stdout)
    monkeypatch.syspath_prepend(str(CELERY))
    shop = importlib.import_module("shop_app")
    with cluster.client() as client:
        # The README's app has a job of such a name.
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


@pytest.mark.slow
def test_the_example_of_the_readme_runs(cluster: LocalCluster, tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    environment = {**os.environ, "RAFTSCHED_ENDPOINTS": ",".join(cluster.endpoints)}
    with cluster.client() as client, (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", example], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
        try:
            wait_until(lambda: any(True for _ in client.jobs.list("name=send_report")))
            run = client.jobs.trigger("send_report", payload={"to": "Ben"})
            assert run.result(str, timeout=60) == "a report for Ben"
        finally:
            process.terminate()
            process.wait(ENDS_S)
