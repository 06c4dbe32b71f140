"""Write the Python side of proto/v1/*.proto. Run it (`./dev proto`) after each change to one.

    python proto/generate.py            # rewrite proto/v1/*_pb2*
    python proto/generate.py --check    # fail if they differ from what would be written

The output is committed: `pip install` needs no compiler, a reader can jump to the definition of
a message, and a review sees what changes. protoc is told that proto/v1 is raftsched/v1, the path
under which the files import each other and which reflection shows; it writes absolute imports,
and the package imports itself by relative ones, so they are rewritten.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
V1 = ROOT / "proto" / "v1"
# Generated code refuses to load on libraries older than its generator, so the generator is the
# oldest that we support: the floors in pyproject.toml say the same.
GRPC_TOOLS = "1.76.0"
ABSOLUTE_IMPORT = re.compile(r"^(\s*)from raftsched\.v1 import ", re.MULTILINE)
ABSOLUTE_STUB_IMPORT = re.compile(r"^(\s*)import raftsched\.v1\.(\w+)(?: as (\w+))?$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: python proto/generate.py [--check]", file=sys.stderr)
        return 2
    wanted = generate()
    present = {path.name: path.read_text() for path in V1.glob("*_pb2*")}
    names = sorted(wanted.keys() | present.keys())
    stale = [name for name in names if wanted.get(name) != present.get(name)]
    if arguments:
        for name in stale:
            print(f"proto/v1/{name} is out of date; run ./dev proto", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        if name in wanted:
            (V1 / name).write_text(wanted[name])
        else:
            (V1 / name).unlink()
    return 0


def generate() -> dict[str, str]:
    """Return the text of each generated file by its name."""
    installed = metadata.version("grpcio-tools")
    if installed != GRPC_TOOLS:
        raise SystemExit(f"grpcio-tools is {installed}, not {GRPC_TOOLS}; run ./dev setup")
    protos = sorted(V1.glob("*.proto"))
    # google/api/*.proto come with googleapis-common-protos.
    includes = [str(metadata.distribution("googleapis-common-protos").locate_file("."))]
    with tempfile.TemporaryDirectory() as out:
        flags = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        command = [sys.executable, "-m", "grpc_tools.protoc", "-Iraftsched/v1=proto/v1"]
        command += [f"-I{include}" for include in includes]
        names = [f"raftsched/v1/{path.name}" for path in protos]
        # protoc finds the mypy plugins by PATH, which need not hold this interpreter's folder.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [*command, *flags, *names],
            cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr)
        services = {p.stem for p in protos if re.search(r"^service ", p.read_text(), re.MULTILINE)}
        return {
            path.name: relative(path.read_text())
            for path in sorted((Path(out) / "raftsched" / "v1").iterdir())
            if "_pb2_grpc" not in path.name or path.name.split("_pb2_grpc")[0] in services
        }


def relative(text: str) -> str:
    text = ABSOLUTE_IMPORT.sub(r"\1from . import ", text)
    return ABSOLUTE_STUB_IMPORT.sub(
        lambda m: f"{m[1]}from . import {m[2]}" + (f" as {m[3]}" if m[3] else ""), text
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
