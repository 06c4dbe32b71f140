"""Which addresses a call may go to, where somebody else has named the target.

Worker and node stand inside of a network, and whoever names a target may stand outside. So this
machine's loopback, its link and what clouds hand out credentials at are shut unless they are
allowed. The most exact rule wins, as in a table of routes; of two that are equally exact, the one
that somebody wrote, and of those the one that denies. What counts is the address that is connected
to, not the name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

RULES_MAX = 1_000
BUILT_IN, ALLOWS, DENIES = range(3)

# What one word stands for.
WORDS: dict[str, tuple[str, ...]] = {
    "any": ("0.0.0.0/0", "::/0"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    "metadata": (
        "169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "100.100.100.200/32",
        "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd00:ec2::23/128",
        "fd20:ce::254/128",
    ),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    "unspecified": ("0.0.0.0/8", "::/128"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("240.0.0.0/4", "fec0::/10"),
}  # fmt: skip
SHUT = ("loopback", "link-local", "metadata", "unspecified", "multicast", "reserved")
# Networks of version 6 that carry an address of version 4, and how many bits stand behind that.
CARRIERS = (
    ("::/96", 0), ("::ffff:0:0:0/96", 0), ("64:ff9b::/96", 0), ("64:ff9b:1::/48", 0),
    ("2002::/16", 80),
)  # fmt: skip
_CARRIERS = tuple((ipaddress.IPv6Network(text), shift) for text, shift in CARRIERS)
_TEREDO = ipaddress.IPv6Network("2001::/32")


@dataclass(frozen=True)
class AddressRules:
    """Each rule is a network, an address, or one of WORDS. ValueError for anything else."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    # Networks, with how much each rule weighs among equals.
    _table: list[tuple[Network, int, str]] = field(
        init=False, repr=False, compare=False, default_factory=list
    )

    def __post_init__(self) -> None:
        for weight, texts in ((BUILT_IN, SHUT), (ALLOWS, self.allow), (DENIES, self.deny)):
            for text in texts:
                self._table.extend((one, weight, text) for one in networks(text))
        if len(self._table) > RULES_MAX:
            raise ValueError(f"{len(self._table):,} rules for addresses; at most {RULES_MAX:,}")

    def refusal(self, address: str) -> str:
        """Why nothing may be sent to this address; empty: it may."""
        try:
            given = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return f"{address!r} is no address"
        for one in meant(given):
            rule = self._rule(one)
            if rule:
                seen = "" if one == given else f", which is {one},"
                return f"{given}{seen} is denied ({rule})"
        return ""

    def _rule(self, address: Address) -> str:
        """The rule that denies it."""
        found = [
            (network.prefixlen, weight, text)
            for network, weight, text in self._table
            if network.version == address.version and address in network
        ]
        _, weight, text = max(found, default=(0, ALLOWS, ""))
        return "" if weight == ALLOWS else text


def networks(text: str) -> Iterator[Network]:
    """What a rule stands for."""
    for one in WORDS.get(text, (text,)):
        try:
            yield ipaddress.ip_network(one)
        except ValueError as wrong:
            known = ", ".join(WORDS)
            raise ValueError(
                f"{text!r} is no address rule ({wrong}); write 10.1.0.0/16 or one of {known}"
            ) from None


def meant(address: Address) -> Iterable[Address]:
    """An address, and those of version 4 that it may stand for; one that is only another spelling
    of such a one is that."""
    mapped = getattr(address, "ipv4_mapped", None)
    yield mapped or address
    if mapped is not None or not isinstance(address, ipaddress.IPv6Address):
        return
    number = int(address)
    for network, shift in _CARRIERS:
        # :: and ::1 have rules of their own.
        if address in network and number > 1:
            yield ipaddress.IPv4Address((number >> shift) & 0xFFFFFFFF)
    if address in _TEREDO:
        yield ipaddress.IPv4Address(~number & 0xFFFFFFFF)
        yield ipaddress.IPv4Address((number >> 64) & 0xFFFFFFFF)


OPEN_TO_LOOPBACK = AddressRules(allow=("loopback",))
