"""What is served as it lies in pages/: the description of all calls, and a page to read it."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .problems import JSON

HERE = Path(__file__).parent / "pages"
FILES = {
    "/openapi.json": ("openapi.json", JSON),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs/icon.svg": ("icon.svg", "image/svg+xml"),
    "/docs/page.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs/page.js": ("docs.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    # The etag says whether it is still the same.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}


@dataclass(frozen=True, slots=True)
class StaticPage:
    body: bytes
    packed: bytes
    media: str
    etag: str

    @property
    def headers(self) -> Mapping[str, str]:
        return HEADERS | {"etag": self.etag}


def pages(prefix: str) -> Mapping[str, StaticPage]:
    """By path; `prefix` stands before all paths, for whoever calls from outside."""
    found = {}
    for path, (name, media) in FILES.items():
        body = (HERE / name).read_bytes()
        if name == "openapi.json" and prefix:
            described = json.loads(body)
            described["servers"] = [{"url": prefix}]
            body = json.dumps(described, ensure_ascii=False).encode()
        body = body.replace(b"{prefix}", prefix.encode()) if name == "docs.html" else body
        etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        found[path] = StaticPage(body, gzip.compress(body, mtime=0), media, etag)
    return found
