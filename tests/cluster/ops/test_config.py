"""What a node is told, and what it says of what does not fit."""

from __future__ import annotations

import ssl
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from raftsched.cluster.ops import tls
from raftsched.cluster.ops.config import KEYS, PREFIX, ConfigWrong
from raftsched.cluster.ops.config_checks import doubts, warnings, webhook_settings
from raftsched.cluster.ops.config_load import load
from raftsched.cluster.ops.config_text import EXAMPLE, text_of

from ...rows import each

ALONE = {"name": "n1", "members": "n1=127.0.0.1:7411/127.0.0.1:7401"}


def written(folder: Path, text: str) -> Path:
    file = folder / "node.toml"
    file.write_text(text)
    return file


def faults(folder: Path, text: str, **flags: str) -> list[str]:
    with pytest.raises(ConfigWrong) as caught:
        load(written(folder, text), {}, ALONE | flags)
    return caught.value.faults


def test_the_written_file_says_what_the_defaults_say(tmp_path: Path) -> None:
    file = written(tmp_path, text_of(EXAMPLE))

    loaded = load(file, {}, {})

    assert loaded.config == EXAMPLE
    assert set(loaded.origins.values()) == {f"file {file}"}


def test_each_key_of_the_written_file_has_its_comment() -> None:
    text = text_of(EXAMPLE)

    for key in KEYS.values():
        assert key.comment in " ".join(text.replace("\n# ", " ").splitlines())
        assert key.comment.endswith(".")


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "cache_mb = 100\nheartbeat_ms = 300\n[log]\nlevel = 'error'")
    environment = {f"{PREFIX}CACHE_MB": "200", f"{PREFIX}HEARTBEAT_MS": "400", "PATH": "x"}

    loaded = load(file, environment, ALONE | {"cache_mb": "300"})

    assert loaded.config.cache_mb == 300
    assert loaded.config.heartbeat_ms == 400
    assert loaded.config.log.level == "error"
    assert loaded.origins["cache_mb"] == "--cache-mb"
    assert loaded.origins["heartbeat_ms"] == "RAFTSCHED_NODE_HEARTBEAT_MS"
    assert loaded.origins["log.level"] == f"file {file}"
    assert loaded.origins["http"] == "default"


def test_what_is_shown_with_origins_can_be_read_again() -> None:
    loaded = load(None, {}, ALONE | {"log.level": "debug"})

    shown = text_of(loaded.config, loaded.origins)

    assert 'level = "debug"  # --log-level\n' in shown
    assert "# --members\n[members.n1]\n" in shown
    assert tomllib.loads(shown)["members"]["n1"]["peer"] == "127.0.0.1:7411"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foldr = 'x'", ["`foldr`", "did you mean `folder`?"]),
        ("level = 'debug'", ["`level`", "did you mean `log.level`?"]),
        ("[log]\nlevl = 'x'", ["`log.levl`", "did you mean `log.level`?"]),
        ("zzz = 1", ["`zzz`", "config init"]),
        ("log = 3", ["log is a section", "[log]"]),
        ("cache_mb = 'much'", ["cache_mb = 'much'", "Expected `int`"]),
        ("cache_mb = 1", ["cache_mb = 1", ">= 8"]),
        ("[log]\nformat = 'xml'", ["log.format = 'xml'", "; there are auto, json, console"]),
        ("listen = 'here'", ["listen = 'here'", "host:port"]),
        ("http = '127.0.0.1:99999'", ["99999", "1 to 65535"]),
        ("http = '::1:7420'", ["brackets"]),
        ("cluster = 'My Cluster'", ["'My Cluster'", "a-z, 0-9"]),
        ("folder = ''", ["folder is empty"]),
        ("name = ", ["is not TOML"]),
    ],
)
def test_a_fault_names_key_value_and_remedy(tmp_path: Path, text: str, words: list[str]) -> None:
    [fault] = faults(tmp_path, text)

    assert all(word in fault for word in words)


def test_a_member_that_is_one_text_is_told_how_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigWrong, match=r"got `str`.*; write \[members\.n1\] .* 'HOST:PORT'"):
        load(written(tmp_path, "name = 'n1'\n[members]\nn1 = 'x'"), {}, {})


def test_all_faults_of_a_kind_are_told_at_once(tmp_path: Path) -> None:
    said = faults(tmp_path, "foldr = 1\ncache_mb = 'x'\nlog = 1", heartbeat_ms="soon")

    assert len(said) == 4


def test_a_file_that_is_not_there_is_named_with_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigWrong, match=r"nothing\.toml cannot be read: No such file.*config init"
    ):
        load(tmp_path / "nothing.toml", {}, {})


@each(
    ("flags", "words"),
    [
        ({"members": ""}, ["members is empty", "--members"]),
        ({"members": "n1"}, ["'n1' is no member"]),
        ({"members": "n1=a:1/b:2 n1=a:3/b:4"}, ["n1 is named twice"]),
        ({"name": ""}, ["name is empty", "n1"]),
        ({"name": "n2"}, ["'n2' is none of the members (n1)"]),
        ({"members": "n1=127.0.0.1:1/127.0.0.1:1"}, ["is members.n1.peer already"]),
        ({"members": "n1=127.0.0.1:1/x"}, ["members.n1.client = 'x'", "host:port"]),
        ({"cache_mb": "lots"}, ["--cache-mb='lots'"]),
        ({"insecure": ""}, ["--insecure=''", "missing"]),
    ],
)
def test_flags_are_checked_like_the_file(flags: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigWrong) as caught:
        load(None, {}, ALONE | flags)

    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("flags", "door"),
    [
        ({"members": "n1=10.0.0.1:7411/127.0.0.1:7401"}, "members.n1.peer"),
        ({"members": "n1=127.0.0.1:7411/node-1:7401"}, "members.n1.client"),
        ({"listen": "0.0.0.0:7401"}, "listen"),
        ({"http": "[::]:7420"}, "http"),
    ],
)
def test_a_door_beyond_this_machine_needs_a_lock_or_a_plain_word(
    flags: dict[str, str], door: str
) -> None:
    with pytest.raises(ConfigWrong) as caught:
        load(None, {}, ALONE | flags)
    aloud = load(None, {}, ALONE | flags | {"insecure": "true"})
    keys = {"members.n1.peer": "peers", "members.n1.client": "clients", "listen": "clients",
            "http": "http"}  # fmt: skip
    for word in ("peers", "clients", "http"):
        said = ALONE | flags | {f"insecure_{word}": "true"}
        if word == keys[door]:
            assert not list(warnings(load(None, {}, said).config))
        else:
            with pytest.raises(ConfigWrong, match="without a lock"):
                load(None, {}, said)

    [fault] = caught.value.faults
    assert fault.startswith(f"{door} = ")
    assert "without a lock" in fault
    assert f"--insecure-{keys[door]}" in fault
    assert "insecure_peers" in next(warnings(aloud.config))
    assert aloud.config.insecure


def certificate(folder: Path) -> dict[str, str]:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "1", "-subj", "/CN=n1",
         "-addext", "subjectAltName=DNS:n1"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    files = {"certificate_file": "cert.pem", "key_file": "key.pem", "ca_file": "cert.pem"}
    return {key: str(folder / name) for key, name in files.items()}


def test_with_certificates_the_doors_may_be_open(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    given = {
        f"tls.{side}.{key}": file for side in ("peer", "server") for key, file in files.items()
    }
    open_doors = {"members": "n1=10.0.0.1:1/10.0.0.1:2", "http": "0.0.0.0:7420"}

    loaded = load(None, {}, ALONE | open_doors | given)
    contexts = tls.peer_contexts(loaded.config)

    assert tls.server(loaded.config) is not None
    assert tls.onward(loaded.config) is not None
    assert contexts is not None
    assert [context.verify_mode for context in contexts] == [ssl.CERT_REQUIRED] * 2
    assert contexts[1].check_hostname


def signed(folder: Path, name: str, days: int = 1, by: str = "ca", names: str = "") -> Path:
    """A certificate of an authority in this folder, which is made when it is not there."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    if not (folder / f"{by}.pem").exists():
        openssl("req", "-x509", *curve, "-keyout", f"{by}.key", "-out", f"{by}.pem",
                "-subj", f"/CN={by}")  # fmt: skip
    openssl("req", *curve, "-keyout", "key.pem", "-out", "request.pem", "-subj", f"/CN={name}")
    (folder / "extensions").write_text(f"subjectAltName={names or f'DNS:{name}'}\n")
    openssl("x509", "-req", "-in", "request.pem", "-CA", f"{by}.pem", "-CAkey", f"{by}.key",
            "-CAcreateserial", "-days", str(days), "-extfile", "extensions",
            "-out", "cert.pem")  # fmt: skip
    return folder / "cert.pem"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({}, ""),
        ({"days": 0}, "certificate has expired"),
        ({"by": "other"}, "unable to get local issuer certificate"),
        ({"names": "DNS:n2"}, "is not valid for 'n1'"),
    ],
)
def test_a_certificate_that_others_would_turn_away_is_found_by_talking_to_oneself(
    tmp_path: Path, how: dict[str, Any], why: str
) -> None:
    signed(tmp_path, "n1")
    signed(tmp_path, "n1", **how)
    pair = {"certificate_file": str(tmp_path / "cert.pem"), "key_file": str(tmp_path / "key.pem")}
    files = pair | {"ca_file": str(tmp_path / "ca.pem")}
    given = {f"tls.peer.{key}": file for key, file in files.items()}

    found = tls.faults(load(None, {}, ALONE | given).config)

    assert len(found) == bool(why)
    assert all(why in fault for fault in found), found
    server = {f"tls.server.{key}": file for key, file in pair.items()} | {"tokens": "true"}
    found = tls.faults(load(None, {}, ALONE | server).config)
    assert len(found) == ("days" in how)


def test_tokens_stand_for_certificates_of_clients_but_not_for_tls(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    open_door = {"members": "n1=127.0.0.1:1/10.0.0.1:2", "tokens": "true"}
    server = {f"tls.server.{key}": files[key] for key in ("certificate_file", "key_file")}

    loaded = load(None, {}, ALONE | open_door | server)

    assert loaded.config.tokens
    for without in (open_door, open_door | server | {"tokens": "false"}):
        with pytest.raises(ConfigWrong, match="without a lock"):
            load(None, {}, ALONE | without)


def test_what_is_allowed_and_hardly_meant_has_a_note() -> None:
    limits = {"limits.watchers": "2", "limits.watchers_by_caller": "5"}
    doubtful = load(None, {}, ALONE | limits | {"limits.waits": "4000"}).config

    [note] = warnings(doubtful)

    assert "limits.watchers_by_caller = 5 is more than limits.watchers = 2" in note
    assert list(warnings(load(None, {}, ALONE).config)) == []
    assert list(doubts(load(None, {}, ALONE | {"tokens": "true"}).config)) == []
    [told] = warnings(load(None, {}, ALONE | {"tokens": "true"}).config)
    assert "raftsched token bootstrap" in told


def test_half_a_certificate_is_no_certificate(tmp_path: Path) -> None:
    files = certificate(tmp_path)

    said = faults(tmp_path, f"[tls.peer]\ncertificate_file = '{files['certificate_file']}'")

    assert len(said) == 2
    assert "tls.peer.key_file is empty, but certificate_file is given" in said[0]


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = faults(tmp_path, "[tls.server]\ncertificate_file = 'no.pem'\nkey_file = 'no.pem'")

    assert (
        said[0]
        == "tls.server.certificate_file = 'no.pem' cannot be read: No such file or directory"
    )


def test_files_that_are_no_certificate_are_refused_before_anything_starts(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    given = {f"tls.peer.{key}": files["ca_file"] for key in files}
    loaded = load(None, {}, ALONE | given)

    with pytest.raises(ConfigWrong, match=r"tls\.peer: the files do not make a certificate"):
        tls.peer_contexts(loaded.config)


def test_keys_for_secrets_come_from_one_place_and_are_for_their_owner(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("x")
    keys.chmod(0o604)
    [fault] = faults(tmp_path, f"[secrets]\nkey_file = '{keys}'\nkey_command = 'pass show keys'")
    assert "take one of them out" in fault
    config = load(None, {}, ALONE | {"secrets.key_file": str(keys)}).config
    assert any("chmod 600" in one for one in doubts(config))
    keys.chmod(0o640)
    assert not list(doubts(config))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("allow = 'loopback, everything'", "'everything' is no address rule"),
        ("deny = '10.0.0.1/8'", "'10.0.0.1/8' is no address rule"),
        ("secret_file = '/no/such'", "No such file"),
        ("secret_file = 'EMPTY'", "holds no secret"),
        ("secret_file = 'WRONG'", "no base64"),
    ],
)
def test_where_webhooks_go_and_what_signs_them_is_checked_before_the_start(
    words: str, why: str, tmp_path: Path
) -> None:
    for name, text in (("EMPTY", "\n"), ("WRONG", "plain secret")):
        (tmp_path / name).write_text(text)
        words = words.replace(name, str(tmp_path / name))

    [fault] = faults(tmp_path, f"[webhooks]\n{words}")

    assert why in fault
    assert fault.startswith("webhooks: ")
    assert "plain" not in fault.replace(str(tmp_path), "")


def test_rules_and_secrets_of_webhooks_are_read(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"whsec_{'AQID' * 8}\nwhsec_{'BAUG' * 8}\n")
    secrets.chmod(0o604)
    given = {"webhooks.allow": "127.0.0.1, ::1", "webhooks.secret_file": str(secrets)}
    config = load(None, {}, ALONE | given).config

    rules, found = webhook_settings(config.webhooks)

    assert [rules.refusal(one) for one in ("127.0.0.1", "::1")] == ["", ""]
    assert rules.refusal("127.0.0.2")
    assert len(found) == 2
    assert any("chmod 600" in one for one in doubts(config))
