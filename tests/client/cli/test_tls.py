"""`raftsched tls`: what it makes is what nodes take, and proves who each of them is."""

from __future__ import annotations

import ssl
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from raftsched.cluster.ops import tls
from raftsched.cluster.ops.config import Config
from raftsched.cluster.ops.config_load import load

from .conftest import Cli

HOSTS = {"n1": "localhost", "n2": "10.0.0.2", "n3": "c.example"}


def made(cli: Cli, folder: Path) -> dict[str, Config]:
    """An authority with three nodes, whose folders stay where they are made."""
    nodes = [word for name, host in HOSTS.items() for word in ("--node", f"{name}={host}")]
    cli.ok("tls", "init", str(folder), *nodes, "--other", "gw=w.example", "--cluster", "prod")
    found = {}
    for name in HOSTS:
        file = folder / name / "node.toml"
        file.write_text(file.read_text().replace("/etc/raftsched", str(folder / name)))
        found[name] = load(file, {}, {}).config
    return found


def shaken(a: Config, b: Config, name: str) -> bool:
    """Whether `a` takes who answers for the node of that name."""
    (_, dialling), (accepting, _) = contexts(a), contexts(b)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        dialling.wrap_bio(back, there, server_hostname=name),
        accepting.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(tls.ROUNDS):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return sides[0].getpeercert() is not None


def contexts(config: Config) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    found = tls.peer_contexts(config)
    assert found is not None
    return found


def test_three_nodes_take_what_it_made_and_know_each_other(cli: Cli, tmp_path: Path) -> None:
    configs = made(cli, tmp_path / "tls")

    assert [config.name for config in configs.values()] == list(HOSTS)
    assert all(tls.faults(config) == [] for config in configs.values())
    assert all(config.tokens and config.cluster == "prod" for config in configs.values())
    assert configs["n1"].members["n2"].peer == "10.0.0.2:7410"
    assert shaken(configs["n1"], configs["n2"], "n2")
    assert not shaken(configs["n1"], configs["n2"], "n3")
    keys = list((tmp_path / "tls").rglob("*.key"))
    assert len(keys) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


def test_a_certificate_is_strict_enough_for_newer_interpreters(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    made(cli, folder)
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "gw" / "node.pem", folder / "gw" / "node.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(back, there, server_hostname="w.example")
    server = serving.wrap_bio(there, back, server_side=True)

    for _ in range(tls.ROUNDS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    assert client.getpeercert()


def test_what_is_renewed_has_another_key_and_the_same_names(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    configs = made(cli, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    rows = cli.rows("tls", "renew", str(folder), "n2", "--days", "30")

    changed = {path for path in before if path.read_bytes() != before[path]}
    assert changed == {folder / "n2" / "node.pem", folder / "n2" / "node.key"}
    assert rows[0][0].split()[:2] == ["n2", "10.0.0.2"]
    assert shaken(configs["n1"], configs["n2"], "n2")
    # All end later than in 30 days but that one, which now has 29 and some hours left.
    assert "n2" in cli.ok("tls", "renew", str(folder), "--if-soon").stdout
    assert "None of 4 certificates" in cli.ok("tls", "renew", str(folder), "--if-soon").stderr


def test_none_is_valid_for_longer_than_its_authority(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    made(cli, folder)

    said = cli.ok("tls", "renew", str(folder), "n1", "--days", "3650")

    ends = [
        x509.load_pem_x509_certificate((folder / name).read_bytes()).not_valid_after_utc
        for name in ("ca.pem", "n1/node.pem")
    ]
    assert ends[0] == ends[1]
    assert "They end with the authority" in said.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["init", "F", "--node", "n1"], 2, "NAME=HOST"),
        (["init", "F", "--node", "n1=a", "--node", "n1=b"], 2, "stands twice"),
        (["init", "F", "--node", "N 1=a"], 2, "NAME=HOST"),
        (["init", "T", "--node", "n1=a"], 6, "holds an authority already"),
        (["renew", "T", "n9"], 3, "no certificate of n9"),
        (["renew", "nowhere"], 2, "No such file"),
        (["renew", "B"], 2, "holds no authority"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    words: list[str], code: int, why: str, cli: Cli, tmp_path: Path
) -> None:
    made(cli, tmp_path / "T")
    (tmp_path / "B").mkdir()
    for name in ("ca.pem", "ca.key"):
        (tmp_path / "B" / name).write_text("nothing")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    words[1] = str(tmp_path / words[1])

    said = cli("tls", *words)

    assert said.exit_code == code
    assert why in said.stderr
    assert all(path.read_bytes() == data for path, data in before.items())


def test_the_node_file_is_toml_whatever_the_folder_is_called(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" folder'
    cli.ok("tls", "init", str(folder), "--node", "n1=::1", "--place", str(folder))

    table = tomllib.loads((folder / "n1" / "node.toml").read_text())

    assert table["tls"]["peer"]["ca_file"] == f"{folder}/ca.pem"
    assert table["members"]["n1"]["client"] == "[::1]:7400"
