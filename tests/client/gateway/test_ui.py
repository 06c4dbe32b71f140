"""How the web page is served: its document at every path that no call has, its files for ever."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from raftsched.client.gateway.headers import Headers
from raftsched.client.gateway.pages import UI, Pages, served

from .served import Served

BROWSER = Headers([(b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")])
PROGRAM = Headers([(b"accept", b"*/*")])
INDEX = """<!doctype html><html><head><title>t</title>
<script type="module" src="{prefix}/ui/main.js"></script></head><body></body></html>"""
BYTES_MAX = 150 << 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "main.js").write_text('import { a } from "./lib/a.js";\nimport("./lib/late.js");')
    (tmp_path / "lib" / "late.js").write_text("export {}")
    (tmp_path / "lib" / "a.js").write_text("export {}")
    (tmp_path / "tokens.css").write_text(":root {}")
    (tmp_path / "DESIGN.md").write_text("not served")
    return tmp_path


def test_a_browser_gets_the_page_at_every_path_that_no_call_has(folder: Path) -> None:
    pages = Pages("", folder)
    index = pages.find("/", PROGRAM)
    assert index is not None
    assert index.headers["cache-control"] == "no-cache"
    for path in ("/jobs", "/jobs/a.b/runs", "/sign-in", "/v1x"):
        assert pages.find(path, BROWSER) is index
        assert pages.find(path, PROGRAM) is None
    for path in ("/v1/jobs", "/api/v1/jobs", "/ui/none.js", "/session", "/ui/DESIGN.md"):
        assert pages.find(path, BROWSER) is None


def test_files_last_and_change_their_place_with_their_content(folder: Path) -> None:
    pages = Pages("/here", folder)
    place = f"/ui/{pages.edition}"
    index = pages.find("/", BROWSER)
    assert index is not None
    text = index.body.decode()
    assert f'src="/here{place}/main.js"' in text
    assert f'<link rel="modulepreload" href="/here{place}/lib/a.js">' in text
    assert "late.js" not in text
    lasting = pages.find(f"{place}/lib/a.js", PROGRAM)
    assert lasting is not None
    assert "immutable" in lasting.headers["cache-control"]
    for other in ("/ui/lib/a.js", "/ui/0123456789ab/lib/a.js"):
        found = pages.find(other, PROGRAM)
        assert found is not None
        assert (found.body, found.headers["cache-control"]) == (b"export {}", "no-cache")
    (folder / "lib" / "a.js").write_text("export {};")
    assert Pages("/here", folder).edition != pages.edition


def test_a_document_names_the_modules_of_its_page_so_that_they_come_at_once(folder: Path) -> None:
    (folder / "pages").mkdir()
    (folder / "pages" / "jobs.js").write_text('import { b } from "../lib/late.js";')
    (folder / "pages" / "job.js").write_text("export {}")
    (folder / "registry.js").write_text(
        'export const PAGES = [\n  { path: "/jobs", load: of("jobs"), nav: "Jobs" },\n'
        '  { path: "/jobs/:job", load: of("job") },\n];\n'
    )
    pages, named = Pages("", folder), {}
    for path in ("/jobs", "/jobs/a.b", "/jobs/a/b", "/"):
        document = pages.find(path, BROWSER)
        assert document is not None
        links = re.findall(r'modulepreload" href="/ui/[0-9a-f]+/([^"]+)"', document.body.decode())
        assert links[:2] == ["main.js", "lib/a.js"]
        named[path] = links[2:]
    assert named == {
        "/jobs": ["pages/jobs.js", "lib/late.js"], "/jobs/a.b": ["pages/job.js"],
        "/jobs/a/b": [], "/": [],
    }  # fmt: skip


def test_each_page_of_the_registry_is_named_by_its_document() -> None:
    pages, listed = Pages(""), re.findall(r'path: "([^"]+)", load: of\("(\w+)"\)', (
        UI / "registry.js").read_text())  # fmt: skip
    assert len(listed) > 10
    for path, name in listed:
        document = pages.find(re.sub(r":\w+", "one", path), BROWSER)
        assert document is not None
        text = document.body.decode()
        assert f"/pages/{name}.js" in text, path
        # What a page needs and the frame has anyway is named once.
        places = re.findall(r'href="([^"]+)"', text)
        assert len(set(places)) == len(places), path


async def test_it_is_served_packed_with_its_policy_and_not_sent_twice(gateway: Served) -> None:
    asked = {"Accept": "text/html", "Accept-Encoding": "gzip"}
    async with gateway.session.get(f"{gateway.url}/jobs/some", headers=asked) as answer:
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        etag, text = answer.headers["etag"], await answer.text()
    again = asked | {"If-None-Match": etag}
    async with gateway.session.get(f"{gateway.url}/jobs/other", headers=again) as answer:
        assert answer.status == 304
    for place in re.findall(r'(?:src|href)="(/[^"]+)"', text):
        async with gateway.session.get(gateway.url + place) as answer:
            assert answer.status == 200, place
    refused = await gateway.ask("POST", "/jobs", {}, accept="text/html")
    assert refused.status == 405


async def test_it_is_served_where_no_node_answers(gateway: Served) -> None:
    for client in gateway.clients:
        await client.close()
    async with gateway.session.get(f"{gateway.url}/") as answer:
        assert answer.status == 200


def test_all_of_it_is_small_and_from_here() -> None:
    files = [path for path in UI.rglob("*") if path.suffix in (".js", ".css", ".svg", ".html")]
    assert sum(len(gzip.compress(served(path), mtime=0)) for path in files) < BYTES_MAX
    document = (UI / "index.html").read_text()
    assert not re.search(r"https?://|<style|\bstyle=|\bon\w+=|<script>|data:", document)
    for path in files:
        if path.suffix == ".css":
            assert not re.search(r"url\(\s*['\"]?(https?:|//|data:)|@import", path.read_text())


def test_what_is_for_readers_of_the_sources_is_not_sent(tmp_path: Path) -> None:
    for name, text, sent in (
        ("a.js", '// Why.\nconst a = "http://a"; // here\n  // there\n  b();\n',
         '\nconst a = "http://a"; // here\n\nb();\n'),
        ("a.css", "/* Why,\n   here. */\na {\n  margin: 0 /* * */ 1px;\n}\n",
         "\na {\nmargin: 0  1px;\n}\n"),
        ("a.txt", "  // as it is\n", "  // as it is\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        assert served(tmp_path / name).decode() == sent
