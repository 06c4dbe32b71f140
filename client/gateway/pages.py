"""What is served as it lies in pages/: the description of all calls with a page to read it, and the
web page in pages/ui/.

The web page is one document for every path that no call has, since what it shows is in its address.
Its files are served below a word made of all of them, so that a browser keeps them for ever and yet
never mixes those of two versions; the document names that word and is asked for each time.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path, PurePosixPath
from posixpath import normpath

from .headers import Headers
from .problems import JSON

HERE = Path(__file__).parent / "pages"
UI = HERE / "ui"
HTML = "text/html; charset=utf-8"
FILES = {
    "/openapi.json": ("openapi.json", JSON),
    "/docs": ("docs.html", HTML),
    "/docs/icon.svg": ("icon.svg", "image/svg+xml"),
    "/docs/page.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs/page.js": ("docs.js", "text/javascript; charset=utf-8"),
}
# Of the web page; files with other endings are not served.
MEDIA = {
    ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".json": JSON, ".txt": "text/plain; charset=utf-8",
}  # fmt: skip
# Below these nothing is a place of the web page: what is not found there is refused.
OF_PROGRAMS = ("/v1", "/api", "/ui", "/docs", "/session", "/openapi.json")
MAIN, IMPORT = "main.js", re.compile(r'^(?:import|export)\s(?:[^;"(]*\sfrom\s)?"(\.[^"]+)"', re.M)
# Where the web page says what is at which path: a pattern, and the file below pages/ that draws it.
REGISTRY, ENTRY = "registry.js", re.compile(r'^\{ path: "([^"]+)", load: of\("(\w+)"\)', re.M)
# What stands in the sources for readers: lines of comment, and indentation, which neither language
# heeds; texts of several lines stand in templates of HTML alone.
FOR_READERS = {
    ".js": re.compile(rb"^[ \t]*//.*$|^[ \t]+", re.MULTILINE),
    ".css": re.compile(rb"/\*(?:[^*]|\*(?!/))*\*/|^[ \t]+", re.MULTILINE),
}
EDITION = re.compile(r"/ui/([0-9a-f]{12})/")
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
    "referrer-policy": "no-referrer",
    # The etag says whether it is still the same.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True)
class StaticPage:
    body: bytes
    media: str
    # Its path names what is in it.
    lasts: bool = False

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.body).hexdigest()[:20]}"'

    @property
    def headers(self) -> Mapping[str, str]:
        return HEADERS | {"etag": self.etag} | (FOR_EVER if self.lasts else {})


class Pages:
    """By path. `prefix` stands before all paths, for whoever calls from outside."""

    def __init__(self, prefix: str, ui: Path = UI) -> None:
        self._found = _described(prefix)
        files = {
            path.relative_to(ui).as_posix(): StaticPage(served(path), MEDIA[path.suffix])
            for path in sorted(ui.rglob("*"))
            if path.suffix in MEDIA
        }
        named = json.dumps([(name, one.etag) for name, one in files.items()])
        self.edition = hashlib.sha256(named.encode()).hexdigest()[:12]
        for name, one in files.items():
            self._found[f"/ui/{name}"] = one
            lasting = StaticPage(one.body, one.media, lasts=True)
            self._found[f"/ui/{self.edition}/{name}"] = lasting
        text = (ui / "index.html").read_text()
        self._index = self._document(text, prefix, reached(files, MAIN))
        self._documents = [
            (pattern, self._document(text, prefix, reached(files, MAIN, name)))
            for pattern, name in registered(files)
        ]

    def _document(self, text: str, prefix: str, modules: list[str]) -> StaticPage:
        """With the places of the files, and the modules named, so that they come at once."""
        where = f"{prefix}/ui/{self.edition}"
        links = "".join(f'<link rel="modulepreload" href="{where}/{name}">\n' for name in modules)
        text = text.replace("{prefix}/ui", where).replace("{prefix}", prefix)
        return StaticPage(text.replace("</head>", f"{links}</head>", 1).encode(), HTML)

    def find(self, path: str, headers: Headers) -> StaticPage | None:
        """What is there for everybody, if it is no call; a browser that is led to any other path
        gets the web page, which knows what that means."""
        found = self._found.get(path)
        if found is None and (other := EDITION.match(path)):
            # Another gateway, of another version, has sent the document.
            found = self._found.get(f"/ui/{path[other.end() :]}")
        if found is not None or path == "/":
            return found or self._document_at(path)
        is_page = "text/html" in headers.get("accept", "") and not any(
            path == one or path.startswith(f"{one}/") for one in OF_PROGRAMS
        )
        return self._document_at(path) if is_page else None

    def _document_at(self, path: str) -> StaticPage:
        """The same document at every path, but for the modules that it names."""
        fits = (one for pattern, one in self._documents if pattern.fullmatch(path))
        return next(fits, self._index)


def refused_page(prefix: str, reason: str, message: str) -> bytes:
    """For whoever comes back from an identity provider and does not get in."""
    text = (HERE / "refused.html").read_text().replace("{prefix}", prefix)
    return text.replace("{reason}", escape(reason)).replace("{message}", escape(message)).encode()


def served(path: Path) -> bytes:
    """A file without what is for readers of it alone; lines of scripts keep their numbers."""
    body, rest = path.read_bytes(), FOR_READERS.get(path.suffix)
    return body if rest is None else rest.sub(b"", body)


def reached(files: Mapping[str, StaticPage], *names: str) -> list[str]:
    """These modules, and those that they need before they can begin."""
    found = dict[str, None]()
    waiting = [*reversed(names)]
    while waiting:
        name = waiting.pop()
        if name in files and name not in found:
            found[name] = None
            text, folder = files[name].body.decode(), PurePosixPath(name).parent
            waiting += [normpath(folder / other) for other in IMPORT.findall(text)]
    return list(found)


def registered(files: Mapping[str, StaticPage]) -> list[tuple[re.Pattern[str], str]]:
    """Which file draws the page at a path, as the page itself decides it: the first that fits."""
    text = files[REGISTRY].body.decode() if REGISTRY in files else ""
    return [
        (re.compile(re.sub(r":\w+", "[^/]+", pattern)), f"pages/{name}.js")
        for pattern, name in ENTRY.findall(text)
    ]


def _described(prefix: str) -> dict[str, StaticPage]:
    """The description of the calls, and its page."""
    found = {}
    for path, (name, media) in FILES.items():
        body = (HERE / name).read_bytes()
        if name == "openapi.json" and prefix:
            described = json.loads(body)
            described["servers"] = [{"url": prefix}]
            body = json.dumps(described, ensure_ascii=False).encode()
        body = body.replace(b"{prefix}", prefix.encode()) if name == "docs.html" else body
        found[path] = StaticPage(body, media)
    return found
