"""What is sent is signed, and whoever hears it can tell."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from raftsched.proto.signatures import SignatureInvalid, keys_of, signed, verify

OLD = "whsec_" + base64.b64encode(bytes(range(24))).decode()
NEW = "whsec_" + base64.b64encode(bytes(range(40, 72))).decode()
AT = 1_767_232_800
BODY = b'{"n": 1}'
Headers = dict[str, str]


def test_the_example_of_standard_webhooks() -> None:
    """Its own, so that other libraries understand ours."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    found = signed(
        keys_of([secret]), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )

    assert found == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    ("ours", "theirs"), [([NEW], [NEW]), ([NEW, OLD], [OLD]), ([OLD], [NEW, OLD]),
                         ([NEW, OLD], [NEW, OLD])],
)  # fmt: skip
def test_a_secret_can_be_exchanged(ours: list[str], theirs: list[str]) -> None:
    headers = {name.title(): text for name, text in signed(keys_of(ours), "r1", AT, BODY).items()}

    assert verify(headers, BODY, theirs, now=AT + 200) == "r1"


def changed(name: str, text: str) -> Callable[[Headers], Headers]:
    return lambda headers: {**headers, name: text}


@pytest.mark.parametrize(
    ("change", "body", "now", "why"),
    [
        (changed("webhook-id", "r2"), BODY, AT, "by one of these secrets"),
        (changed("webhook-timestamp", str(AT + 1)), BODY, AT, "by one of these secrets"),
        (dict, b"{}", AT, "by one of these secrets"),
        (changed("webhook-signature", "v1a,x v2,y"), BODY, AT, "by one of these secrets"),
        (changed("webhook-signature", "v1,\u00e4"), BODY, AT, "by one of these secrets"),
        (dict, BODY, AT + 301, "more than 300 s"),
        (dict, BODY, AT - 301, "more than 300 s"),
        (changed("webhook-timestamp", "1e9"), BODY, AT, "no number"),
        (changed("webhook-timestamp", "9" * 400), BODY, AT, "no number"),
        (changed("webhook-signature", ""), BODY, AT, "without the header webhook-signature"),
    ],
)
def test_what_is_not_whole_or_not_new_is_refused(
    change: Callable[[Headers], Headers], body: bytes, now: float, why: str
) -> None:
    with pytest.raises(SignatureInvalid, match=why):
        verify(change(signed(keys_of([NEW]), "r1", AT, BODY)), body, [NEW], now=now)


@pytest.mark.parametrize(
    "secrets", [["x"], ["whsec_AAAA"], [""], ["whsec_" + "A" * 400], [NEW, OLD, NEW], ["whsec_ä"]]
)
def test_what_is_no_secret_is_refused_and_not_shown(secrets: list[str]) -> None:
    with pytest.raises(ValueError, match="secret") as refused:
        keys_of(secrets)

    assert all(one not in str(refused.value) for one in secrets if len(one) > 3)
    assert signed([], "r1", AT, BODY) == {}
