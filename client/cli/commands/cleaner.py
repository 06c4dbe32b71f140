"""The gate through which each text of a support bundle passes, so that no secret is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "(hidden)"
# Settings whose values are secrets or may hold some, wherever they stand. One that ends in `_file`
# names a file.
NAME = (
    r"[\w.-]*(?:token|secret|password|passwd|authorization|api[_-]?key|credential|key[_-]command)"
    r"[\w.-]*(?<![_-]file)"
)
# The texts of TOML that go over lines; flat lists and tables; then what stands alone.
VALUE = (
    r"\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|\[[^\[\]\n]*\]|\{[^{}\n]*\}"
    r"|\"[^\"\n]*\"|'[^'\n]*'|[^\s,}\]\"']+"
)
SETTING = re.compile(rf"(?i)(?P<name>[\"']?(?<![\w.-]){NAME}[\"']?\s*[=:]\s*)(?P<value>{VALUE})")
# Say that there is one, or how many.
PLAIN = {"", "[]", "{}", "true", "false", "none", "null", "on", "off", MASK}
LOOKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
                re.DOTALL), MASK),
    # Ours: access tokens, and what makes the first one or another admin.
    (re.compile(r"\brs[ab]?_[A-Za-z0-9_-]{16,}"), MASK),
    # What webhooks are signed with.
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]{8,}"), MASK),
    # JSON Web Tokens.
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"), MASK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(?i)\b((?:set-)?cookie[\"']?\s*[:=]\s*).+"), rf"\1{MASK}"),
    # https://user:password@host, where a password may hold an @, and a token may stand alone.
    (re.compile(r"(?<=://)[^\s/?#\"'<>]+@"), f"{MASK}@"),
    # Of a URL that is open to whoever has it.
    (re.compile(r"(?i)([?&;][\w.-]*(?:sig|signature|key|code|auth|pass|pwd)=)[^\s&;\"'<>]+"),
     rf"\1{MASK}"),
)  # fmt: skip


class Cleaner:
    """Takes secrets out of texts: those that it is given, and whatever looks like one."""

    def __init__(self, values: Iterable[str]) -> None:
        from ...worker.redaction import Redaction

        self._values = tuple({value for value in values if value})
        self._known = Redaction(self._values)

    def text(self, text: str) -> str:
        text = self._known.text(text)
        for formats, instead in LOOKS:
            text = formats.sub(instead, text)
        return SETTING.sub(_masked, text)

    def left_in(self, text: str) -> bool:
        """Whether one that it knows got through; none may."""
        return any(value in text for value in self._values)


def _masked(found: re.Match[str]) -> str:
    value = found["value"].strip("\"'")
    if value.lower() in PLAIN or value.isdecimal():
        return found[0]
    return f'{found["name"]}"{MASK}"'
