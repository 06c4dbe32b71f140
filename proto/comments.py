"""What the contracts say of each thing, for what is made of them where the code is written.

Comments are not in the generated code, so protoc is asked for them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).resolve().parent.parent


def comment(name: str) -> str:
    """What is said of a thing, by its full name: "raftsched.v1.JobService.CreateJob"."""
    return comments().get(name, "")


@cache
def comments() -> Mapping[str, str]:
    """What is said of each thing in the contracts, by its full name."""
    google = str(metadata.distribution("googleapis-common-protos").locate_file("."))
    with tempfile.NamedTemporaryFile() as out:
        files = sorted((ROOT / "proto" / "v1").glob("*.proto"))
        words = [sys.executable, "-m", "grpc_tools.protoc", "-Iraftsched/v1=proto/v1"]
        words += [f"-I{google}", "--include_source_info", f"--descriptor_set_out={out.name}"]
        subprocess.run([*words, *(f"raftsched/v1/{one.name}" for one in files)],
                       cwd=ROOT, check=True)  # fmt: skip
        described = FileDescriptorSet.FromString(Path(out.name).read_bytes())
    found = dict[str, str]()
    for file in described.file:
        for location in file.source_code_info.location:
            if location.leading_comments and len(location.path) % 2 == 0:
                name = named(file, list(location.path))
                found[f"{file.package}.{name}"] = as_text(location.leading_comments)
    return found


def named(file: Any, path: list[int]) -> str:  # noqa: ANN401  # Descriptors of all kinds.
    """The name behind a path of numbers: fields of descriptors and places in them."""
    held, names = file, list[str]()
    for number, place in zip(path[::2], path[1::2], strict=True):
        field = held.DESCRIPTOR.fields_by_number[number]
        held = getattr(held, field.name)[place] if field.is_repeated else held
        if not hasattr(held, "name"):
            return ""
        # A value of an enum is named beside it.
        names = [*names[:-1], held.name] if field.name == "value" else [*names, held.name]
    return ".".join(names)


def as_text(text: str) -> str:
    """A comment as paragraphs; lists keep their lines."""
    lines = [line.removeprefix(" ").rstrip() for line in text.strip("\n").split("\n")]
    return re.sub(r"(?<!\n)\n(?![\n*\- ])", " ", "\n".join(lines)).strip()
