"""The keys for secrets: what they encrypt opens at its own place, under its own key, alone."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from raftsched.cluster.node.secret_keys import (
    KeysWrong,
    NotOpened,
    SecretKey,
    SecretKeys,
    differing,
    keys_in,
    new_key,
)
from raftsched.statemachine.model.request import SealedPlace, SealedSecret

from ...rows import each

PLACE = SealedPlace(0, "default", "api-key", 1)
VALUE = "s3cr3t wörd"
A, B = SecretKey(b"a" * 32), SecretKey(b"b" * 32)


def test_what_is_encrypted_opens_under_the_same_key() -> None:
    sealed = A.seal(PLACE, VALUE)
    assert sealed.key_id == A.id == SecretKey(b"a" * 32).id != B.id
    assert A.open(sealed) == VALUE
    assert VALUE.encode() not in sealed.data
    assert A.seal(PLACE, VALUE).data != sealed.data


def test_it_opens_under_no_other_key() -> None:
    with pytest.raises(NotOpened, match="put it again"):
        B.open(A.seal(PLACE, VALUE))


@pytest.mark.parametrize(
    "place",
    [
        PLACE._replace(number=1), PLACE._replace(namespace="team"), PLACE._replace(name="other"),
        PLACE._replace(version=2),
    ],
)  # fmt: skip
def test_it_opens_at_no_other_place(place: SealedPlace) -> None:
    sealed = A.seal(PLACE, VALUE)
    with pytest.raises(NotOpened):
        A.open(SealedSecret(place, A.id, sealed.data))


def test_not_one_byte_of_it_may_differ() -> None:
    sealed = A.seal(PLACE, VALUE)
    for at in range(len(sealed.data)):
        wrong = bytearray(sealed.data)
        wrong[at] ^= 1
        with pytest.raises(NotOpened):
            A.open(SealedSecret(PLACE, A.id, bytes(wrong)))
    for size in range(len(sealed.data)):
        with pytest.raises(NotOpened):
            A.open(SealedSecret(PLACE, A.id, sealed.data[:size]))


def test_the_wrapped_key_of_another_secret_does_not_fit() -> None:
    one, other = A.seal(PLACE, VALUE), A.seal(PLACE._replace(name="b"), "b")
    spliced = one.data[:61] + other.data[61:]
    with pytest.raises(NotOpened):
        A.open(SealedSecret(PLACE, A.id, spliced))


def test_a_fingerprint_is_the_keys() -> None:
    assert A.fingerprint(b"x") == SecretKey(b"a" * 32).fingerprint(b"x")
    assert A.fingerprint(b"x") not in (A.fingerprint(b"y"), B.fingerprint(b"x"))


def test_no_word_of_a_key_shows_it() -> None:
    assert repr(A) == f"SecretKey({A.id})"
    assert "data" not in repr(A.seal(PLACE, VALUE))


# The list.


def line(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_a_list_has_the_newest_first() -> None:
    text = f"# of 2026\n{line(b'b' * 32)}  # new\n\n{line(b'a' * 32)}\n"
    assert [key.id for key in keys_in(text, "f")] == [B.id, A.id]
    assert len(base64.b64decode(new_key())) == 32


@each(
    ("text", "why"),
    [
        ("", "there is no key"),
        ("# nothing", "there is no key"),
        ("not base64!", "line 1 is no base64"),
        (f"{line(b'a' * 32)}\n{line(b'a' * 16)}", "line 2 has 16 bytes"),
        (f"{line(b'a' * 32)}\n{line(b'a' * 32)}", "stands there twice"),
        ("\n".join(line(bytes([n]) * 32) for n in range(17)), "there are 17 keys"),
    ],
)
def test_a_wrong_list_is_refused_and_not_repeated(text: str, why: str) -> None:
    with pytest.raises(KeysWrong, match=why) as found:
        keys_in(text, "f")
    assert not any(word in str(found.value) for word in text.split() if len(word) > 8)


def write(file: Path, *keys: bytes) -> None:
    new = file.with_name("new")
    new.write_text("".join(f"{line(key)}\n" for key in keys))
    new.replace(file)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    write(file, b"a" * 32)
    keys = SecretKeys(str(file))
    assert list(keys.ids) == [A.id]
    assert not keys.look()
    write(file, b"b" * 32, b"a" * 32)
    assert keys.look()
    assert list(keys.ids) == [B.id, A.id]
    file.write_text("nonsense")
    assert not keys.look()
    assert list(keys.ids) == [B.id, A.id]
    file.unlink()
    assert not keys.look()
    write(file, b"a" * 32)
    assert keys.look()
    assert list(keys.ids) == [A.id]
    assert keys.find(A.id) is not None
    assert keys.find(B.id) is None


def test_a_file_that_is_not_there_or_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeysWrong, match=r"secrets\.key_file = .* cannot be read"):
        SecretKeys(str(tmp_path / "none"))
    (tmp_path / "long").write_bytes(b"#" * 70_000)
    with pytest.raises(KeysWrong, match="over 65536 bytes"):
        SecretKeys(str(tmp_path / "long"))
    (tmp_path / "odd").write_bytes(os.urandom(10) + b"\xff")
    with pytest.raises(KeysWrong, match="no text"):
        SecretKeys(str(tmp_path / "odd"))


def test_a_command_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SecretKeys(command=f"echo {line(b'a' * 32)}").ids == (A.id,)
    for command, why in (
        ("false", "ended with 1"), ("no-such-command-at-all", "cannot be run"),
        ("'", "cannot be run"), ("sh -c 'echo denied >&2; exit 3'", "ended with 3: denied"),
    ):  # fmt: skip
        with pytest.raises(KeysWrong, match=why):
            SecretKeys(command=command)
    monkeypatch.setattr("raftsched.cluster.node.secret_keys.COMMAND_S", 0.05)
    with pytest.raises(KeysWrong, match="did not end within"):
        SecretKeys(command="sleep 60")


def test_nodes_whose_keys_differ_are_named() -> None:
    assert differing(("a", "b"), {"n2": ("a", "b")}, "n1") == []
    assert differing((), {"n2": ()}, "n1") == []
    [said] = differing(("a", "b"), {"n2": ("a",), "n3": ("a", "b")}, "n1")
    assert said.startswith("n2 has the keys for secrets a, n1 has a, b;")
    [said] = differing(("a",), {"n2": ()}, "n1")
    assert said.startswith("n2 has the keys for secrets none")
    [said] = differing(("a", "b"), {"n2": ("b", "a")}, "n1")
    assert said.startswith("n2 encrypts secrets under b, n1 under a")
