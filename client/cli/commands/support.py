"""`raftsched support-bundle`: what somebody needs who looks into a fault, and no secret.

Nothing of jobs, runs or payloads goes in: only what nodes and this machine say of themselves.
"""

from __future__ import annotations

import io
import json
import os
import platform
import resource
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path

import click

from .. import messages as m
from ..exits import Exit, Trouble, reason_of, wrong_use
from ..options import command
from ..session import Invocation, many
from .cleaner import Cleaner

LOG_BYTES = 4 << 20  # Of the end of each log.
TEXT_MAX = 8 << 20  # Of each other part.
SECRET_MAX = 64 << 10  # Of a file with secrets.
FILES_MAX = 5_000  # Of a folder that are listed.
ASK_S = 3.0
PACKAGES = (
    "raftsched", "grpcio", "protobuf", "rocksdict", "pysyncobj", "croniter", "tzdata", "uvicorn",
    "starlette", "cryptography", "uvloop",
)  # fmt: skip
# Files with secrets: the node's, in its folder and by its configuration; those of this command.
IN_FOLDER = ("bootstrap-secret",)
IN_CONFIG = (
    ("secrets", "key_file"), ("gateway", "oidc_secret_file"), ("webhooks", "secret_file"),
)  # fmt: skip
FILES = click.Path(path_type=Path, dir_okay=False)
Part = tuple[str, Callable[[], str]]


@command(
    None, "support-bundle",
    "raftsched support-bundle fault.tar.gz",
    "raftsched support-bundle fault.tar.gz --log node.log --config /etc/raftsched/node.toml",
    "raftsched support-bundle fault.tar.gz --metrics http://127.0.0.1:7420/metrics",
)  # fmt: skip
@click.argument("file", type=FILES)
@click.option("--log", "logs", multiple=True, type=FILES, metavar="FILE",
              help="Also the end of this log; can be repeated.")  # fmt: skip
@click.option("--config", "configs", multiple=True, type=FILES, metavar="FILE",
              help="Also this configuration of a node; can be repeated.")  # fmt: skip
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Also which files a node's folder holds, and none of them.")  # fmt: skip
@click.option("--metrics", "urls", multiple=True, metavar="URL",
              help="Also a node's metrics; can be repeated.")  # fmt: skip
def support_bundle(
    session: Invocation, file: Path, logs: tuple[Path, ...], configs: tuple[Path, ...],
    folder: Path | None, urls: tuple[str, ...],
) -> None:  # fmt: skip
    """Put into FILE what is needed to find a fault: status, findings, metrics, ends of logs.

    Secrets are taken out (tokens, keys, passwords), and nothing of jobs or payloads goes in. Have
    a look before you send it: tar -xzf FILE. Without a cluster only this machine is in it.
    """
    cleaner = Cleaner(known_secrets(session, configs, folder))
    parts = [*of_machine(session), *of_cluster(session)]
    parts += [(f"logs/{at}-{log.name}", partial(end_of, log)) for at, log in enumerate(logs)]
    parts += [(f"config/{at}-{one.name}", partial(text_of, one)) for at, one in enumerate(configs)]
    parts += [(f"metrics/{at}.txt", partial(fetched, url)) for at, url in enumerate(urls)]
    if folder is not None:
        parts.append(("folder.txt", partial(listed, folder)))
    texts = {name: cleaner.text(attempt(made)) for name, made in parts}
    # The gate is looked through once more, for what is known for sure.
    if bad := [name for name, text in texts.items() if cleaner.left_in(text)]:
        raise Trouble(
            "a secret would be in it, so nothing was written", f"in {bad[0]}",
            "the same without that file, and report it", Exit.FAILED,
        )  # fmt: skip
    write(file, texts)
    size = file.stat().st_size
    session.say(
        f"{many(len(texts), 'part')}, {size / 1e3:,.0f} kB. Look through it before you send it.",
        then=f"tar -tzf {file}",
    )
    if not session.out.is_table:
        session.out.records([{"part": name, "bytes": len(text)} for name, text in texts.items()])


def attempt(made: Callable[[], str]) -> str:
    """A part that cannot be had says why; that is a finding too."""
    try:
        return made()[:TEXT_MAX]
    except Trouble as trouble:
        return f"could not be had: {trouble.format_message()}\n"
    except (OSError, ValueError) as error:
        return f"could not be had: {reason_of(error)}\n"


def of_machine(session: Invocation) -> Iterator[Part]:
    known = {name: [one.value, one.origin] for name, one in session.values.items()}
    yield "about.json", lambda: as_json(about())
    yield "environment.txt", environment
    yield "settings.json", partial(as_json, known)


def about() -> dict[str, object]:
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    limits = {"files": resource.RLIMIT_NOFILE, "file bytes": resource.RLIMIT_FSIZE,
              "processes": resource.RLIMIT_NPROC, "memory": resource.RLIMIT_AS}  # fmt: skip
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(), "system": platform.platform(),
        "machine": platform.machine(), "processors": os.cpu_count(), "load": os.getloadavg(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "limits": {name: resource.getrlimit(number) for name, number in limits.items()},
        "versions": versions,
    }  # fmt: skip


def environment() -> str:
    return "".join(
        f"{name}={os.environ[name]}\n"
        for name in sorted(os.environ)
        if name.startswith("RAFTSCHED")
    )


def of_cluster(session: Invocation) -> Iterator[Part]:
    from .doctor import examine

    yield "doctor.json", lambda: as_json([asdict(one) for one in examine(session, None, ())])
    for number, address in enumerate(session.nodes()):
        yield f"status/{number}.json", partial(status, session, address)


def status(session: Invocation, address: str) -> str:
    """What a node says of itself and of the others."""
    from google.protobuf.json_format import MessageToJson

    from ...sdk.errors import RaftschedError

    with session.make_client() as client:
        try:
            seen = client.call(
                m.cluster_pb2.GetClusterStatusRequest(), endpoint=address, retry=False,
                timeout=ASK_S,
            )  # fmt: skip
        except RaftschedError as error:
            return f"{address} does not answer: {error.message}\n"
    return MessageToJson(seen)


def fetched(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is no http address")
    try:
        with urllib.request.urlopen(url, timeout=ASK_S) as answer:
            data: bytes = answer.read(TEXT_MAX)
    except urllib.error.URLError as error:
        raise OSError(f"{url}: {error.reason}") from error
    return data.decode(errors="replace")


def listed(folder: Path) -> str:
    """Names, sizes and times of its files, and the room on its disk."""
    disk = shutil.disk_usage(folder)
    lines = [f"free {disk.free:,} of {disk.total:,} bytes"]
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number == FILES_MAX:
            lines.append("and more")
            break
        seen = path.lstat()
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seen.st_mtime))
        lines.append(f"{seen.st_mode:o} {seen.st_size:>14,} {at} {path.relative_to(folder)}")
    return "\n".join(lines) + "\n"


def end_of(path: Path) -> str:
    """From a line's beginning on."""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - LOG_BYTES))
        data = log.read(LOG_BYTES)
    if size > LOG_BYTES:
        # The first line lacks its beginning, by which a secret would be known.
        data = data.partition(b"\n")[2]
    return data.decode(errors="replace")


def text_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(TEXT_MAX).decode(errors="replace")


def known_secrets(
    session: Invocation, configs: tuple[Path, ...], folder: Path | None
) -> Iterator[str]:
    """All values that must not be in it, as far as this command may read them."""
    import tomllib

    yield os.environ.get("RAFTSCHED_TOKEN", "").strip()
    files = [Path(session.values[name].value) for name in ("token_file", "key_file")
             if session.values[name].value]  # fmt: skip
    files += [folder / name for name in IN_FOLDER] if folder is not None else []
    for config in configs:
        try:
            table = tomllib.loads(text_of(config))
        except (OSError, ValueError):
            continue  # Its part says so.
        found = [table.get(section, {}).get(key) for section, key in IN_CONFIG]
        files += [Path(name) for name in found if name]
    for file in files:
        try:
            with file.open("rb") as opened:
                text = opened.read(SECRET_MAX).decode(errors="replace")
        except OSError:
            continue  # What nobody here can read cannot get in either.
        yield text.strip()
        yield from (line.strip() for line in text.splitlines() if not line.startswith("-----"))


def as_json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def write(file: Path, texts: dict[str, str]) -> None:
    """For its owner alone; one that is there stays."""
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Trouble(f"{file} is there already", "", "another name", Exit.CONFLICT) from error
    except OSError as error:
        raise wrong_use(f"cannot write {file}", reason_of(error), "another place") from error
    with os.fdopen(number, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in texts.items():
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"raftsched-support/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
