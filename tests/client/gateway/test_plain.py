"""The short form of a job, before nodes that speak the contract."""

from __future__ import annotations

from typing import Any

import pytest

from raftsched.client.gateway import plain
from raftsched.client.gateway.fields import Wrong
from raftsched.proto.v1 import job_pb2, run_pb2

from ...rows import each
from ...statemachine.driver import warn_all
from ..stage import Stage
from .served import Served

HOOK = "https://example.com/hook"
SHORT = {"name": "report", "cron": "0 9 * * *", "callback_url": HOOK}
PATHS = ("/api/v1/jobs", "/v1/jobs")


@pytest.mark.parametrize("path", PATHS)
async def test_a_job_is_made_of_what_people_type_first(path: str, gateway: Served) -> None:
    body = SHORT | {
        "priority": "HIGH", "payload": {"a": 1}, "zone": "Europe/Berlin", "retries": 2,
        "jitter": "30s", "every": 90, "run_at": "2027-01-01T00:00:00Z",
    }  # fmt: skip
    made = await gateway.ask("POST", path, body)
    assert (made.status, made.headers["location"]) == (201, "/v1/jobs/report")
    assert {*made.body} == {"job_id", "next_fire_time"}
    assert (made.body["job_id"], made.body["next_fire_time"][-1]) == ("report", "Z")
    spec = (await gateway.ask("GET", "/v1/jobs/report")).body["spec"]
    assert spec == {
        "action": {"http": {"url": HOOK}},
        "payload": {"data": "eyJhIjoxfQ==", "contentType": "application/json"},
        "priority": "PRIORITY_HIGH",
        "schedules": [
            {"cron": {"expression": "0 9 * * *"}},
            {"interval": {"every": "90s"}},
            {"once": {"time": "2027-01-01T00:00:00Z"}},
        ],
        "timing": {"zone": "Europe/Berlin", "jitter": "30s"},
        "retry": {"maxAttempts": 3},
    }


@pytest.mark.parametrize("path", PATHS)
async def test_target_is_another_word_and_payload_may_be_empty(path: str, gateway: Served) -> None:
    body: dict[str, Any] = {
        "cron": "@daily",
        "target": HOOK,
        "payload": {},
        "name": "a",
        "priority": None,
    }
    assert (await gateway.ask("POST", path, body)).status == 201
    job = (await gateway.ask("GET", "/v1/jobs/a")).body
    assert job["spec"]["payload"]["data"] == "e30="


async def test_a_name_is_made_where_there_is_none(gateway: Served) -> None:
    body = {"callback_url": HOOK}
    one = await gateway.ask("POST", "/api/v1/jobs", body)
    other = await gateway.ask("POST", "/api/v1/jobs", body)
    assert one.body["job_id"] != other.body["job_id"]
    assert one.body["next_fire_time"] is None
    first = await gateway.ask("POST", "/api/v1/jobs", body, Idempotency_Key="k")
    again = await gateway.ask("POST", "/api/v1/jobs", body, Idempotency_Key="k")
    assert first.body == again.body
    reused = await gateway.ask(
        "POST", "/api/v1/jobs", body | {"cron": "@daily"}, Idempotency_Key="k"
    )
    assert (reused.status, reused.reason) == (422, "REQUEST_ID_REUSED")


# What is wrong, and where.
WRONG: list[tuple[Any, list[str]]] = [
    ({"name": "a"}, ["callback_url"]),
    ([], [""]),
    (None, [""]),
    (SHORT | {"spec": {}}, ["spec"]),
    (SHORT | {"crn": "x"}, ["crn"]),
    (SHORT | {"target": HOOK}, ["target"]),
    (SHORT | {"retries": -1, "jitter": "x", "every": True}, ["retries", "jitter", "every"]),
    (SHORT | {"priority": "URGENT", "run_at": "soon"}, ["priority", "run_at"]),
    (SHORT | {"cron": 5, "zone": 1, "name": 2}, ["name", "cron", "zone"]),
    (SHORT | {"retries": "3", "every": {}, "jitter": -1}, ["retries", "every", "jitter"]),
    (SHORT | {"cron": "61 * * * *"}, ["cron"]),
    (SHORT | {"zone": "Mars/Olympus"}, ["zone"]),
    (SHORT | {"callback_url": "ftp://x"}, ["callback_url"]),
    (SHORT | {"every": "1ms"}, ["every"]),
    (SHORT | {"jitter": "9d"}, ["jitter"]),
]


@pytest.mark.parametrize(("body", "fields"), WRONG, ids=lambda one: str(one)[-40:])
async def test_a_wrong_field_is_named_as_it_was_typed(
    body: Any, fields: list[str], gateway: Served
) -> None:
    got = await gateway.ask("POST", "/api/v1/jobs", body)
    assert got.status == 400
    assert [*dict.fromkeys(got.fields)] == fields
    assert "spec." not in got.error["message"]
    assert got.error["details"][0]["metadata"]["field"] == fields[0]


async def test_a_mixture_of_both_forms_is_refused(gateway: Served) -> None:
    body = {"name": "a", "spec": {"action": {"handler": "x"}}, "cron": "@daily"}
    got = await gateway.ask("POST", "/v1/jobs", body)
    assert (got.status, got.fields) == (400, ["spec", "callback_url"])
    assert "write all of the job in one form" in got.error["message"]
    # Without a field of the short form it is the other one.
    whole = await gateway.ask("POST", "/v1/jobs", {"name": "a"})
    assert (whole.status, whole.fields) == (400, ["spec.action"])


async def test_namespaces(gateway: Served) -> None:
    await gateway.ask("POST", "/v1/namespaces", {"name": "shop"})
    shop = {"namespace": "shop"}
    query = "?namespace=shop"
    forms: list[tuple[str, str, dict[str, str]]]
    forms = [("a", query, {}), ("b", "", shop), ("c", query, shop)]
    for name, asked, body in forms:
        made = await gateway.ask("POST", f"/api/v1/jobs{asked}", SHORT | body | {"name": name})
        assert made.headers["location"] == f"/v1/jobs/{name}?namespace=shop"
    both = await gateway.ask("POST", "/api/v1/jobs?namespace=a", SHORT | {"namespace": "shop"})
    assert (both.status, both.fields) == (400, ["namespace"])
    unknown = await gateway.ask("POST", "/api/v1/jobs?nmespace=a", SHORT)
    assert (unknown.status, unknown.fields) == (400, ["nmespace"])


async def test_the_life_of_a_job(gateway: Served, stage: Stage) -> None:
    assert (await gateway.ask("POST", "/api/v1/jobs", SHORT)).status == 201
    await gateway.ask("PATCH", "/v1/jobs/report", {"spec": {"action": {"handler": "build"}}})
    status = "/api/v1/jobs/report/status"
    fresh = (await gateway.ask("GET", status)).body
    assert (fresh["status"], fresh["last_run"], fresh["retry_count"]) == ("PENDING", None, 0)
    assert fresh["warning"] is None
    assert fresh["next_run"] is not None
    run = (await gateway.ask("POST", "/v1/jobs/report:trigger", {})).body
    assert (await gateway.ask("GET", status)).body["status"] == "PENDING"
    leases: list[Any] = []
    stage.act(lambda machine: leases.extend(machine.grant("w1")))
    assert (await gateway.ask("GET", status)).body["status"] == "RUNNING"
    stage.act(lambda machine: [machine.fail(lease, "Boom") for lease in leases])
    retrying = (await gateway.ask("GET", status)).body
    assert (retrying["status"], retrying["retry_count"]) == ("RETRYING", 0)
    await gateway.ask("POST", f"/v1/runs/{run['id']}:retry", {})
    stage.finish(b"{}")
    ended = (await gateway.ask("GET", status)).body
    assert (ended["status"], ended["retry_count"]) == ("SUCCEEDED", 1)
    assert ended["last_run"].endswith("Z")
    history = (await gateway.ask("GET", "/api/v1/jobs/report/history?page_size=5")).body
    assert (history["job_id"], history["next_page_token"]) == ("report", "")
    [told] = history["runs"]
    assert (told["run_id"], told["status"], told["retry_count"]) == (run["id"], "SUCCEEDED", 1)
    await gateway.ask("POST", "/v1/jobs/report:pause", {})
    assert (await gateway.ask("GET", status)).body["status"] == "PAUSED"
    gone = await gateway.ask("DELETE", "/api/v1/jobs/report")
    assert (gone.status, gone.body) == (200, {"deleted": True})
    missing = await gateway.ask("DELETE", "/api/v1/jobs/report")
    assert (missing.status, missing.reason) == (404, "JOB_NOT_FOUND")


async def test_a_warning_is_shown_beside_a_success(gateway: Served, stage: Stage) -> None:
    await gateway.ask("POST", "/api/v1/jobs", SHORT)
    await gateway.ask("PATCH", "/v1/jobs/report", {"spec": {"action": {"handler": "build"}}})
    await gateway.ask("POST", "/v1/jobs/report:trigger", {})
    stage.act(lambda machine: warn_all(machine, "look at this"))
    status = (await gateway.ask("GET", "/api/v1/jobs/report/status")).body
    assert (status["status"], status["warning"]) == ("SUCCEEDED", "look at this")
    [run] = (await gateway.ask("GET", "/api/v1/jobs/report/history")).body["runs"]
    assert (run["status"], run["error"], run["warning"]) == ("SUCCEEDED", None, "look at this")
    query = "filter=state%3DSUCCEEDED%20AND%20warning%21%3D%22%22"
    found = (await gateway.ask("GET", f"/v1/runs?{query}")).body
    assert [one["warning"] for one in found["runs"]] == ["look at this"]


async def test_a_trial_of_the_short_form_makes_nothing(gateway: Served) -> None:
    tried = await gateway.ask("POST", "/api/v1/jobs?validateOnly=true", SHORT)
    assert (tried.status, "location" in tried.headers) == (200, False)
    assert (await gateway.ask("GET", "/v1/jobs/report")).status == 404


@each(("given", "ms"), [(90, 90_000), (0.5, 500), ("1h30m", 5_400_000), ("90s", 90_000), (0, 0)])
def test_a_length_is_seconds_or_a_text(given: object, ms: int) -> None:
    assert plain.length(given) == ms


@each("given", [True, -1, "x", None, [], float("inf"), float("nan"), 1e300, "5"])
def test_what_is_no_length_is_refused(given: object) -> None:
    with pytest.raises((Wrong, ValueError), match=r"length of time|10,000 years"):
        plain.length(given)


def test_what_a_run_does_goes_before_what_keeps_the_job() -> None:
    paused = job_pb2.JobStatus(state=job_pb2.JobStatus.STATE_PAUSED)
    run = run_pb2.Run(state=run_pb2.RUN_STATE_RUNNING)
    assert plain._word(paused, [run]) == "RUNNING"
    assert plain._word(paused, []) == "PAUSED"
