"""What is installed is what is in the checkout.

The wheel is built from the unpacked sdist, as an installer would: an sdist that forgets a folder,
or that follows the links in .src, gives an empty wheel without a word.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ["proto", "cluster", "statemachine", "client", "chaos"]
# The .proto files travel along: a program in another language needs them, and the wheel is at hand.
KINDS = {".py", ".pyi", ".proto", ".typed", ".js", ".css", ".html", ".json", ".svg", ".txt"}
NOT_FOR_USERS = {
    "client/calls/catalog.py", "client/calls/from_contracts.py", "client/calls/generate.py",
    "client/gateway/openapi.py", "proto/comments.py", "proto/generate.py",
}  # fmt: skip


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    hatchling("sdist", ROOT, out)
    [archive] = out.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        # Python 3.11.2, which some still ship, knows no filter; later ones warn without it.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(out)
    [unpacked] = [path for path in out.iterdir() if path.is_dir()]
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    hatchling("wheel", sdist, out)
    [archive] = out.glob("*.whl")
    return ZipFile(archive)


def hatchling(target: str, source: Path, out: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


def checkout() -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in KINDS or path.name == "py.typed"
    }


def test_the_wheel_holds_the_checkout_and_nothing_else(wheel: ZipFile) -> None:
    installed = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert installed == {f"raftsched/{name}" for name in checkout() - NOT_FOR_USERS}


def test_every_package_is_typed_for_its_users(wheel: ZipFile) -> None:
    assert {f"raftsched/{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_raftsched_stays_a_namespace(wheel: ZipFile) -> None:
    """A file of its own would make the five folders findable in one place only."""
    assert "raftsched/__init__.py" not in wheel.namelist()


def test_the_sdist_holds_the_real_folders_and_not_the_links(sdist: Path) -> None:
    assert not (sdist / ".src").exists()
    assert {*PACKAGES, "tests", "README.md", "CHANGELOG.md", "LICENSE"} <= {
        path.name for path in sdist.iterdir()
    }


def test_the_links_name_the_five_folders() -> None:
    links = {path.name: path.resolve() for path in (ROOT / ".src" / "raftsched").iterdir()}

    assert links == {package: (ROOT / package).resolve() for package in PACKAGES}


def test_the_lock_names_no_address() -> None:
    """A download address would tie everybody to one registry."""
    lock = (ROOT / ".ci" / "requirements-dev.txt").read_text()

    assert "://" not in lock
    assert "--index-url" not in lock
    assert lock.count("==") <= lock.count("--hash=sha256:")


def test_the_generator_is_the_floor_of_the_libraries() -> None:
    """Generated code refuses to load on a library older than its generator."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floors = [need for need in project["project"]["dependencies"] if need.startswith("grpcio>")]

    generated = (ROOT / "proto" / "v1" / "job_pb2_grpc.py").read_text()
    [version] = [line for line in generated.splitlines() if "GRPC_GENERATED_VERSION =" in line]

    assert floors == [f"grpcio>={version.split(chr(39))[1].removesuffix('.0')},<2"]
