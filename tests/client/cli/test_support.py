"""`raftsched support-bundle`: it has what helps, and none of the secrets that were planted."""

from __future__ import annotations

import base64
import tarfile
from pathlib import Path

import pytest

from raftsched.client.cli.commands.cleaner import MASK, Cleaner

from ...rows import each
from .conftest import Cli

# By value: what the command can read itself, wherever else it stands.
TOKEN = "rs_Zm9vYmFyYmF6cXV1eGNvcmdl"
BOOTSTRAP = "rsb_c2VjcmV0LWJvb3RzdHJhcC1zZWNyZXQ"
KEY = base64.b64encode(b"k" * 32).decode()
WEBHOOK = base64.b64encode(b"w" * 24).decode()
OIDC = "oidc-client-hunter2"
PEM_BODY = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
PEM = f"-----BEGIN PRIVATE KEY-----\n{PEM_BODY}\n-----END PRIVATE KEY-----\n"
# By their looks alone.
UNKNOWN = {
    "another token": "rs_AAAABBBBCCCCDDDDEEEE",
    "a JWT": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
    "a header": "dXNlcjpwYXNzd29yZA==",
    "in a URL": "pa55word",
    "in JSON": "correct-horse",
    "in TOML": "battery-staple",
    "in a variable": "tr0ub4dor",
    "of a webhook": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "second in a list": "s3c0nd",
    "in a table": "n3st3d",
    "over lines": "pl4st3r",
    "behind an @": "w0rd",
    "alone in a URL": "ghp_aBcDeF",
    "in a query": "s1gn4tur3",
    "a cookie": "b1scu1t",
}
LOG = f'''
{{"event": "refused", "token": "{UNKNOWN["in JSON"]}", "tokens": true, "term": 3}}
webhook to https://ann:{UNKNOWN["in a URL"]}@example.com/hook failed
Authorization: Bearer {UNKNOWN["a JWT"]}
authorization: Basic {UNKNOWN["a header"]}
the caller showed {UNKNOWN["another token"]} and {TOKEN}
DB_PASSWORD={UNKNOWN["in a variable"]} SHELL=/bin/sh
{PEM}
key {KEY} loaded, {BOOTSTRAP} written
signs with {UNKNOWN["of a webhook"]}, {{"passwords": ["first", "{UNKNOWN["second in a list"]}"]}}
"secret":{{"value":"{UNKNOWN["in a table"]}"}}, tokens = [3]
password = """
{UNKNOWN["over lines"]}"""
dsn postgres://ada:p@ss{UNKNOWN["behind an @"]}@db/x, https://{UNKNOWN["alone in a URL"]}@host/y?a=b
GET /x?a=b&X-Amz-Signature={UNKNOWN["in a query"]}&sig={UNKNOWN["in a query"]} took 3 ms
Set-Cookie: session={UNKNOWN["a cookie"]}; HttpOnly
secret of webhooks {WEBHOOK}
n1 leads in term 3
'''
CONFIG = """
name = "n1"
tokens = true
[secrets]
key_file = "{folder}/keys"
key_command = "vault read -token {toml}"
[gateway]
oidc_secret_file = "{folder}/oidc"
[webhooks]
secret_file = "{folder}/hooks"
"""


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, Path]:
    node = tmp_path / "node"
    node.mkdir()
    texts = {
        tmp_path / "token": TOKEN + "\n", tmp_path / "keys": KEY + "\n", tmp_path / "oidc": OIDC,
        tmp_path / "hooks": WEBHOOK,
        node / "bootstrap-secret": BOOTSTRAP, tmp_path / "node.log": LOG + OIDC + "\n",
        tmp_path / "node.toml": CONFIG.format(folder=tmp_path, toml=UNKNOWN["in TOML"]),
    }  # fmt: skip
    for path, text in texts.items():
        path.write_text(text)
    return {"log": tmp_path / "node.log", "config": tmp_path / "node.toml", "folder": node}


def texts_of(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("raftsched-support/")] = file.read().decode()
        return found


def test_no_secret_gets_into_the_bundle(cli: Cli, tmp_path: Path, planted: dict[str, Path]) -> None:
    bundle = tmp_path / "fault.tar.gz"

    said = cli.ok(
        "support-bundle", str(bundle), "--log", str(planted["log"]), "--config",
        str(planted["config"]), "--folder", str(planted["folder"]),
        RAFTSCHED_TOKEN_FILE=str(tmp_path / "token"), RAFTSCHED_TOKEN="rs_planted-in-a-variable",
    )  # fmt: skip

    texts = texts_of(bundle)
    planted_texts = [TOKEN, BOOTSTRAP, KEY, OIDC, PEM_BODY, WEBHOOK, "planted-in-a-variable"]
    secrets = [*planted_texts, *UNKNOWN.values()]
    found = {(name, one) for name, text in texts.items() for one in secrets if one in text}
    assert found == set()
    # What helps is there.
    log = texts["logs/0-node.log"]
    assert "n1 leads in term 3" in log
    assert '"tokens": true' in log
    for stays in ("SHELL=/bin/sh", "@db/x", "host/y?a=b", "took 3 ms"):
        assert stays in log
    assert f"https://{MASK}@example.com/hook" in log
    assert "bootstrap-secret" in texts["folder.txt"]
    assert f'key_file = "{tmp_path}/keys"' in texts["config/0-node.toml"]
    assert '"leader"' in texts["status/0.json"]
    assert '"check"' in texts["doctor.json"]
    assert '"python"' in texts["about.json"]
    assert bundle.stat().st_mode & 0o777 == 0o600
    assert "Look through it before you send it." in said.stderr


def test_without_a_cluster_or_a_file_it_says_so_inside(cli: Cli, tmp_path: Path) -> None:
    bundle = tmp_path / "fault.tar.gz"

    cli.ok("support-bundle", str(bundle), "--log", str(tmp_path / "none.log"), "--endpoints",
           "127.0.0.1:1")  # fmt: skip

    texts = texts_of(bundle)
    assert texts["logs/0-none.log"].startswith("could not be had: No such file")
    assert "does not answer" in texts["status/0.json"]
    assert "cannot connect" in texts["doctor.json"]


def test_a_file_that_is_there_stays(cli: Cli, tmp_path: Path) -> None:
    bundle = tmp_path / "fault.tar.gz"
    bundle.write_text("mine")

    said = cli("support-bundle", str(bundle))

    assert said.exit_code == 6
    assert bundle.read_text() == "mine"


@each(
    "text",
    [
        "tokens = true",
        "secrets: 3",
        "token_file = /run/token",
        "the token of n1 expired",
        "a=b",
        "https://a.example/x?state=FAILED&page=2",
        "mail a@b.example",
        '"tokens": [], "term": 3',
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Cleaner([]).text(text) == text
