"""`raftsched secret`: a value goes in by a file, a pipe or the keyboard, and never comes out."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from google.protobuf.message import Message

from raftsched.client.cli.commands import secret as command
from raftsched.proto.v1 import secret_pb2

from ..stage import Fault, Stage, refusing
from .conftest import Cli
from .test_groups import saying

WORD = "XplainX"
MADE = secret_pb2.Secret(
    namespace="default", name="api-key", value_version=2, key_id="0123456789ab", updater="root",
    labels={"team": "a"},
)  # fmt: skip


def answering(stage: Stage, *answers: Message | Fault) -> None:
    faults = [saying(one) if isinstance(one, Message) else one for one in answers]
    stage.nodes[0].faults.extend(faults)


def put(stage: Stage) -> secret_pb2.PutSecretRequest:
    """The last put that was asked for."""
    found = [one for one in stage.nodes[0].heard if isinstance(one, secret_pb2.PutSecretRequest)]
    return found[-1]


def test_a_value_comes_from_a_file_or_a_pipe_and_is_not_printed(
    cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    for written, sent in (
        (WORD, WORD), (f"{WORD}\n", WORD), (f"{WORD}\r\n", WORD), (f"{WORD}\n\n", f"{WORD}\n\n"),
        (f"a\n{WORD}\n", f"a\n{WORD}\n"), (" x ", " x "),
    ):  # fmt: skip
        file.write_bytes(written.encode())
        for words, typed in ((str(file), None), ("-", written)):
            answering(stage, MADE)
            said = cli.ok("secret", "put", "api-key", "--from-file", words, typed=typed)
            assert put(stage).value == sent
            assert WORD not in said.output
    assert put(stage).secret.namespace == "default"
    assert "Secret api-key has value 2, under the key 0123456789ab." in said.stderr


def test_labels_change_alone(cli: Cli, stage: Stage) -> None:
    answering(stage, MADE)
    cli.ok("secret", "put", "api-key", "--keep-value", "--label", "team=a", "--etag", "v3")
    asked = put(stage)
    assert (asked.value, dict(asked.secret.labels), asked.secret.etag) == ("", {"team": "a"}, "v3")


def test_a_value_is_typed_unseen(cli: Cli, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        """Somebody sits there."""

        def isatty(self) -> bool:
            return True

    asked: list[tuple[str, object]] = []

    def prompt(text: str, **how: object) -> str:
        asked.append((text, how["hide_input"]))
        return WORD

    monkeypatch.setattr(click, "prompt", prompt)
    monkeypatch.setattr(command, "sys", type("Sys", (), {"stdin": Terminal()}))
    answering(stage, MADE)
    said = cli.ok("secret", "put", "api-key")
    assert asked == [("Value of api-key", True)]
    assert put(stage).value == WORD
    assert WORD not in said.output


def test_what_is_no_value_is_refused_and_not_repeated(
    cli: Cli, stage: Stage, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff" + WORD.encode())
    for words, why in (
        (("--from-file", str(file)), "is no text in UTF-8"),
        (("--from-file", str(tmp_path / "none")), "cannot be read"),
        (("--from-file", str(file), "--keep-value"), "it is one or the other"),
        ((), "there is no terminal to ask on"),
    ):
        said = cli("secret", "put", "api-key", *words)
        assert (said.exit_code, why in said.stderr) == (2, True), said.stderr
        assert WORD not in said.output
    said = cli("secret", "put", "api-key", "--from-file", "-", typed="\n")
    assert (said.exit_code, "stdin is empty" in said.stderr) == (2, True)
    assert cli("secret", "put", "api-key", WORD).exit_code == 2
    assert not any(isinstance(one, secret_pb2.PutSecretRequest) for one in stage.nodes[0].heard)


def test_a_refusal_says_what_to_write(cli: Cli, stage: Stage) -> None:
    answering(stage, refusing("SECRET_KEY_MISSING", "n1 has no key", node="n1"))
    said = cli("secret", "put", "api-key", "--from-file", "-", typed=WORD)
    assert said.exit_code == 6
    assert "n1 has no key" in said.stderr
    assert "raftsched node config check" in said.stderr
    assert WORD not in said.output


def test_they_are_listed_and_shown(cli: Cli, stage: Stage) -> None:
    answering(stage, secret_pb2.ListSecretsResponse(secrets=[MADE]), MADE)
    titles, row = cli.rows("secret", "list")
    found = dict(zip(titles, row, strict=True))
    assert (found["NAME"], found["VALUE"], found["KEY"]) == ("api-key", "2", "0123456789ab")
    assert (found["BY"], found["LABELS"]) == ("root", "team=a")
    assert "valueVersion: '2'" in cli.ok("secret", "get", "api-key", "-o", "yaml").stdout


def test_one_is_deleted(cli: Cli, stage: Stage) -> None:
    answering(stage, secret_pb2.DeleteSecretResponse())
    cli.ok("secret", "delete", "api-key", "--yes", "--force")
    [asked] = [one for one in stage.nodes[0].heard
               if isinstance(one, secret_pb2.DeleteSecretRequest)]  # fmt: skip
    assert (asked.namespace, asked.secret, asked.force) == ("default", "api-key", True)


def test_all_are_put_under_another_key_step_by_step(cli: Cli, stage: Stage) -> None:
    kind = secret_pb2.RekeySecretsResponse
    answering(
        stage,
        kind(rekeyed=100, key_id="new", next_page_token="t"),
        kind(rekeyed=7, unopened=1, key_id="new", missing_key_ids=["gone"]),
    )
    said = cli.ok("secret", "rekey")
    assert "107 secrets encrypted under the key new. 1 secret not; they need gone." in said.stderr
    asked = [one for one in stage.nodes[0].heard
             if isinstance(one, secret_pb2.RekeySecretsRequest)]  # fmt: skip
    assert [one.page_token for one in asked] == ["", "t"]
    assert len({one.request_id for one in asked}) == 2


def test_the_sdk_says_the_same(stage: Stage) -> None:
    from raftsched.client import Client

    kind = secret_pb2.RekeySecretsResponse
    answering(stage, MADE, kind(rekeyed=2, key_id="new", next_page_token="t"),
              kind(rekeyed=1, key_id="new", missing_key_ids=["gone"], unopened=1))  # fmt: skip
    with Client(stage.endpoints) as client:
        assert client.secrets.put("api-key", WORD, labels={"team": "a"}) == MADE
        asked = put(stage)
        assert (asked.value, dict(asked.secret.labels)) == (WORD, {"team": "a"})
        assert asked.secret.namespace == "default"
        done = client.secrets.rekey(request_id="r")
    assert (done.rekeyed, done.unopened, list(done.missing_key_ids)) == (3, 1, ["gone"])
