"""The scenario `hostile`: its table, its checks, and a short run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftsched.chaos.real.hostile import http2, web_requests
from raftsched.chaos.real.hostile.brief import AttackFindings
from raftsched.chaos.real.hostile.checks import (
    HighestTerm,
    HostileLimits,
    HostileObservations,
    Memory,
    Played,
    Start,
    verdict,
)
from raftsched.chaos.real.hostile.gateway_checks import Asked
from raftsched.chaos.real.hostile.http1 import request
from raftsched.chaos.real.hostile.run import HostileOptions, chosen
from raftsched.chaos.real.hostile.table import ATTACKS

RUN = "from raftsched.client.cli import main; main()"
SHORT_S = 400
# What costs little and is refused at the door.
CHEAP = (
    "refused-calls", "nested-bodies", "unknown-methods", "admin-calls", "secrets-shown",
    "others-things", "connections-that-come-and-go", "http-smuggling", "http-hosts-and-origins",
    "http-event-ids", "http-old",
)  # fmt: skip


def quiet() -> HostileObservations:
    """Twenty seconds in which all was well, and one attack."""
    seen = HostileObservations(began=100.0, ended=120.0)
    seen.terms = [HighestTerm(100 + 0.2 * n, 5) for n in range(100)]
    seen.memory = [Memory(100 + n, "n1", 7, 90 + n) for n in range(20)]
    seen.starts = [Start(100 + 0.1 * n, 3.0) for n in range(200)]
    seen.played = [
        Played("refused-calls", "P1", 105.0, 110.0, AttackFindings(calls=10, refused=10))
    ]
    seen.gateway_asked = [Asked(100 + 0.2 * n, 100.005 + 0.2 * n, 200 + n % 2) for n in range(99)]
    seen.gateway_memory = [Memory(100 + n, "gateway", 9, 80 + n) for n in range(20)]
    return seen


def checked(seen: HostileObservations, *violations: str) -> dict[str, Any]:
    return verdict(seen, HostileLimits(), violations)


def test_each_attack_has_words_a_number_and_one_way_to_be_played() -> None:
    assert len(ATTACKS) > 60
    for name, attack in ATTACKS.items():
        assert name == attack.name
        assert attack.words.endswith("."), name
        assert attack.number, name
        assert (attack.call is None) != (attack.deed is None), name
        assert 0 < attack.seconds <= 20, name


def test_each_known_failure_has_an_attack() -> None:
    numbers = {word for attack in ATTACKS.values() for word in attack.number.split(", ")}
    wanted = {
        "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P10", "P11", "P12", "P13", "P15", "P16",
        "A0", "A1", "A2", "A3", "A4", "A5", "S2", "S3", "S4", "S8", "S10", "S11", "S12", "S18",
    }  # fmt: skip
    assert wanted <= numbers


def test_a_seed_decides_the_order_and_only_names_what_is_played() -> None:
    first, again = chosen(HostileOptions(seed=1)), chosen(HostileOptions(seed=1))
    assert first == again != chosen(HostileOptions(seed=2))
    assert {attack.name for attack in first} == set(ATTACKS)
    assert [attack.name for attack in chosen(HostileOptions(only=("garbage",)))] == ["garbage"]


def test_a_cluster_that_held_is_said_to_be_well() -> None:
    found = checked(quiet())
    assert found["verdict"] == "ok", found
    assert found["leader_changes_by_attack"] == 0
    assert found["lateness_ms"] == {"p99": 3.0, "max": 3.0}
    assert found["rss_mb_growth"] == 19
    assert found["attacks"][0]["calls"] == 10


def test_an_election_that_nobody_ordered_is_the_attacks() -> None:
    seen = quiet()
    seen.terms[40:] = [HighestTerm(term.at, 7) for term in seen.terms[40:]]
    found = checked(seen)
    assert (found["verdict"], found["leader_changes_by_attack"]) == ("failed", 2)
    assert found["attacks"][0]["leader_changes"] == 2


def test_an_election_while_others_use_the_machine_is_counted_apart() -> None:
    seen = quiet()
    seen.terms[40:] = [HighestTerm(term.at, 7) for term in seen.terms[40:]]
    seen.foreign = [(107.5, 108.0)]
    found = checked(seen)
    assert (found["verdict"], found["leader_changes_by_attack"]) == ("ok", 0)
    assert found["leader_changes_unclear"] == found["attacks"][0]["leader_changes_unclear"] == 2


def test_the_death_of_a_leader_by_the_harness_is_not() -> None:
    seen = quiet()
    seen.terms[40:] = [HighestTerm(term.at, 6) for term in seen.terms[40:]]
    seen.ours = [(107.5, 108.5)]
    seen.starts[76] = Start(107.6, 700.0)
    found = checked(seen)
    assert found["verdict"] == "ok", found
    assert found["lateness_ms"]["max"] < 500


def test_a_run_that_is_late_long_after_a_kill_is_counted() -> None:
    seen = quiet()
    seen.ours = [(107.5, 107.6)]
    seen.starts[76] = Start(107.6, 3_000.0)
    found = checked(seen)
    assert found["verdict"] == "failed"
    assert found["lateness_ms"]["max"] == pytest.approx(2_100, abs=1)


def test_time_in_which_the_machine_was_busy_is_kept_apart() -> None:
    seen = quiet()
    seen.starts[60] = Start(106.0, 900.0)
    seen.busy = [(106.1, 106.8)]
    found = checked(seen)
    assert found["verdict"] == "ok", found
    assert found["lateness_ms"]["max"] == pytest.approx(200, abs=1)
    assert found["lateness_raw_ms"]["max"] == pytest.approx(900, abs=1)


def test_one_late_run_in_fifty_is_too_many() -> None:
    seen = quiet()
    seen.starts[50:54] = [Start(105.0, 60.0)] * 4
    found = checked(seen)
    assert (found["verdict"], found["lateness_ms"]["p99"]) == ("failed", 60.0)


def test_a_node_that_grows_is_found_also_after_its_restart() -> None:
    seen = quiet()
    seen.memory += [Memory(115.0, "n1", 8, 60), Memory(116.0, "n1", 8, 400)]
    found = checked(seen)
    assert (found["verdict"], found["rss_mb_growth"]) == ("failed", 310)


def test_a_node_that_is_started_in_an_attack_grows_from_what_nodes_held() -> None:
    seen = quiet()
    seen.memory += [Memory(106.0, "n2", 8, 20), Memory(107.0, "n2", 8, 130)]
    seen.memory.sort(key=lambda one: one.at)
    found = checked(seen)
    # The largest held 94 before the attack.
    assert found["attacks"][0]["rss_mb_growth"] == 36


@pytest.mark.parametrize(
    "wrong", ["it leads with damaged tables", "10 of ten strangers became admins"]
)
def test_what_an_attack_itself_found_is_a_failure(wrong: str) -> None:
    seen = quiet()
    seen.played[0].found.wrong.append(wrong)
    found = checked(seen)
    assert (found["verdict"], found["failed"]) == ("failed", ["refused-calls"])
    assert found["attacks"][0]["wrong"] == [wrong]


def test_a_node_that_ended_by_itself_is_a_failure() -> None:
    seen = quiet()
    seen.deaths.append((107.0, "n1 ended with 1: a Report alone changes 7800824 bytes"))
    found = checked(seen)
    assert found["verdict"] == found["attacks"][0]["verdict"] == "failed"
    assert "n1 ended with 1" in found["attacks"][0]["wrong"][0]


def test_a_broken_promise_and_a_bystander_that_starved_are_failures() -> None:
    assert checked(quiet(), "S2: every-1-0 at 5 has no outcome")["verdict"] == "failed"
    starved = quiet()
    starved.starts.clear()
    assert checked(starved)["verdict"] == "failed"
    skipped = quiet()
    skipped.never = 1
    assert checked(skipped)["verdict"] == "failed"


def test_what_the_gateway_did_for_others_is_judged_in_each_attack() -> None:
    found = checked(quiet())
    assert found["gateway"] == {
        "asked": 99, "p50_ms": 5.0, "max_ms": 5.0, "raw_max_ms": 5.0, "rss_mb": 99,
    }  # fmt: skip
    assert found["attacks"][0]["gateway"]["asked"] == 28
    slow = quiet()
    slow.gateway_asked.append(Asked(106.0, 109.0, 200))
    assert checked(slow)["attacks"][0]["wrong"] == [
        "an honest call through the gateway took 3000 ms"
    ]
    refused = quiet()
    refused.gateway_asked += [Asked(106.0, 106.1, 429), Asked(107.0, 107.1, 0)]
    assert "1 with nothing, 1 with 429" in checked(refused)["attacks"][0]["wrong"][0]
    grown = quiet()
    grown.gateway_memory.append(Memory(106.0, "gateway", 9, 900))
    found = checked(grown)
    assert found["verdict"] == "failed"
    assert found["attacks"][0]["wrong"] == ["the gateway held 900 MiB"]
    lost = quiet()
    lost.gateway_lost = 2
    assert checked(lost)["wrong"] == ["2 jobs that were made through the gateway are gone"]


def test_a_gateway_that_waits_for_a_new_leader_is_not_blamed() -> None:
    seen = quiet()
    seen.ours = [(105.9, 106.4)]
    seen.gateway_asked.append(Asked(106.0, 108.0, 503))
    assert checked(seen)["verdict"] == "ok"


def test_shapes_that_mean_two_things_are_as_they_are_sent() -> None:
    made = web_requests.shapes(b"GET /inner")
    assert len(made) > 25
    for name, data in made.items():
        head = data.partition(b"\r\n\r\n")[0]
        assert b"HTTP/1." in head, name
        # The inner request is whole, wherever it stands.
        assert b"GET /inner" in data, name
    assert made["two lengths"].endswith(b"Content-Length: 10\r\n\r\nGET /inner")
    assert request("GET", "/x", token="t", host="h") == (
        b"GET /x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n"
    )


def test_frames_and_headers_are_those_of_the_standards() -> None:
    # RFC 7541, C.1.2: 1337 with a prefix of five bits.
    assert http2._number(1337, 5, 0) == bytes((0b11111, 0b10011010, 0b00001010))
    assert http2.frame(http2.RST_STREAM, 0, 5, b"1234") == b"\0\0\4\3\0\0\0\0\5" + b"1234"
    assert http2.message(b"ab") == b"\0\0\0\0\2ab"
    assert http2.literal("te", "trailers") == b"\0\2te\x08trailers"


def test_attacks_are_named_with_a_line_each() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RUN, "chaos", "run", "hostile", "--list"],
        capture_output=True, text=True, timeout=SHORT_S, check=True,
    )  # fmt: skip
    assert len(ended.stdout.splitlines()) == len(ATTACKS)


@pytest.mark.slow
@pytest.mark.timeout(SHORT_S)
def test_a_short_run_with_cheap_attacks_holds(tmp_path: Path) -> None:
    words = [word for name in CHEAP for word in ("--only", name)]
    # How late runs are says more of the machine that runs the tests than of the cluster.
    ended = subprocess.run(
        [
            sys.executable, "-c", RUN, "chaos", "run", "hostile", "--seconds", "30", *words,
            "--no-kills", "--dir", str(tmp_path / "run"), "-o", "json", "--late-ms", "5000",
            "--quiet-ms", "500",
        ],
        capture_output=True, text=True, timeout=SHORT_S, check=False,
    )  # fmt: skip
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert (ended.returncode, found["verdict"]) == (0, "ok"), (found, ended.stderr)
    assert found["lost"] == found["doubled"] == found["leader_changes_by_attack"] == 0
    assert {each["name"] for each in found["attacks"]} == set(CHEAP)
