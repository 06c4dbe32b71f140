"""Which addresses a call may go to: the table."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import pytest

from raftsched.proto.addresses import RULES_MAX, WORDS, AddressRules, networks


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("8.8.8.8", ""), ("10.0.0.1", ""), ("192.168.1.1", ""), ("2606:4700::1", ""),
        ("fd00::1", ""),
        ("127.0.0.1", "loopback"), ("127.255.0.9", "loopback"), ("::1", "loopback"),
        ("0.0.0.0", "unspecified"), ("0.1.2.3", "unspecified"), ("::", "unspecified"),
        ("169.254.1.1", "link-local"), ("fe80::1", "link-local"), ("fe80::1%eth0", "link-local"),
        ("169.254.169.254", "metadata"), ("100.100.100.200", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("224.0.0.1", "multicast"), ("ff02::1", "multicast"),
        ("255.255.255.255", "reserved"), ("fec0::1", "reserved"),
        # Version 4 in version 6: mapped, compatible, translated, NAT64 (two), 6to4, Teredo (two).
        ("::ffff:127.0.0.1", "loopback"), ("::ffff:7f00:1", "loopback"),
        ("::ffff:8.8.8.8", ""), ("::127.0.0.1", "loopback"), ("::ffff:0:127.0.0.1", "loopback"),
        ("64:ff9b::169.254.169.254", "metadata"), ("64:ff9b:1::7f00:1", "loopback"),
        ("64:ff9b::8.8.8.8", ""), ("2002:7f00:1::1", "loopback"), ("2002:808:808::1", ""),
        ("2001:0:808:808::80ff:fffe", "loopback"), ("2001:0:7f00:1::f7f7:f7f7", "loopback"),
        # Only what the system's own look-up has made of a name is asked about.
        ("2130706433", "no address"), ("0x7f.1", "no address"), ("localhost", "no address"),
        ("", "no address"), ("127.1", "no address"),
    ],
)  # fmt: skip
def test_what_is_shut_unless_it_is_allowed(address: str, rule: str) -> None:
    refusal = AddressRules().refusal(address)

    assert rule in refusal
    assert bool(rule) == bool(refusal)


@pytest.mark.parametrize(
    ("allow", "deny", "goes", "does_not"),
    [
        (["loopback"], [], ["127.0.0.1", "::1", "::ffff:127.0.0.1"], ["169.254.0.1"]),
        (["127.0.0.2"], [], ["127.0.0.2"], ["127.0.0.1"]),
        (["any"], [], ["8.8.8.8"], ["127.0.0.1", "169.254.169.254"]),
        (["link-local"], [], ["169.254.7.7"], ["169.254.169.254"]),
        (["metadata"], [], ["169.254.169.254"], ["169.254.7.7"]),
        (["10.1.0.0/16"], ["any"], ["10.1.2.3", "::ffff:10.1.2.3"], ["10.2.0.1", "8.8.8.8", "::5"]),
        ([], ["private"], ["8.8.8.8"], ["10.0.0.1", "172.31.0.1", "fd00::1", "::ffff:10.0.0.1"]),
        (["10.0.0.0/8"], ["10.0.0.0/8"], [], ["10.0.0.1"]),
        (["10.0.0.0/8"], ["10.0.0.7"], ["10.0.0.6"], ["10.0.0.7"]),
    ],
)
def test_the_most_exact_rule_wins(
    allow: Sequence[str], deny: Sequence[str], goes: list[str], does_not: list[str]
) -> None:
    rules = AddressRules(tuple(allow), tuple(deny))

    assert [one for one in goes if rules.refusal(one)] == []
    assert [one for one in does_not if not rules.refusal(one)] == []


@pytest.mark.parametrize("text", ["10.0.0.1/8", "localhost", "example.com", "", "300.1.1.1"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address rule"):
        AddressRules(allow=(text,))


def test_rules_are_bounded_and_words_are_networks() -> None:
    with pytest.raises(ValueError, match="at most 1,000"):
        AddressRules(deny=tuple(f"10.0.{n // 250}.{n % 250}" for n in range(RULES_MAX)))
    # Python's own opinion of what is global does not contradict the table.
    for word in ("loopback", "link-local", "private", "unspecified"):
        for network in networks(word):
            assert not ipaddress.ip_address(network.network_address).is_global
    assert set(WORDS) > {"any", "metadata"}
