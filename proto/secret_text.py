"""Where the action of a job names a secret, `secret://NAME`: one reading for rules and workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .v1 import job_pb2

NAMED = re.compile(r"secret://([a-z0-9][a-z0-9_-]*)", re.ASCII)
SCHEME = "secret://"


def values_of(action: job_pb2.Action) -> Iterable[str]:
    """The texts of an action that may name secrets."""
    match action.WhichOneof("kind"):
        case "http":
            return action.http.headers.values()
        case "grpc":
            return action.grpc.metadata.values()
        case "shell":
            return action.shell.environment.values()
    return ()


def names_in(action: job_pb2.Action) -> tuple[str, ...]:
    """The secrets that an action names, each once and in order."""
    texts = values_of(action)
    return tuple(sorted({name for text in texts for name in NAMED.findall(text)}))


def misplaced(action: job_pb2.Action) -> str:
    """The field of an action that has such a text, and in which it is not read; empty if none."""
    http, grpc, shell = action.http, action.grpc, action.shell
    fields = (
        ("http.url", [http.url]), ("http.headers, in a name,", http.headers),
        ("grpc.target", [grpc.target]), ("grpc.method", [grpc.method]), ("shell.argv", shell.argv),
    )  # fmt: skip
    return next((name for name, texts in fields if any(SCHEME in text for text in texts)), "")


def is_wrong(text: str) -> bool:
    """Whether it has the beginning without a name behind it."""
    return text.count(SCHEME) != len(NAMED.findall(text))


def filled(texts: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The same texts with the values of their secrets; KeyError with the name of one that is not
    there. What a value says is not read again."""
    return {
        name: NAMED.sub(lambda found: secrets[found[1]], text) if SCHEME in text else text
        for name, text in texts.items()
    }
