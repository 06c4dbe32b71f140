"""The chart: rendered by Helm's own library, valid for Kubernetes, and a cluster that starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from raftsched.cluster.ops.config_load import load

from .tools import DEPLOY

helm = pytest.importorskip(
    "helm_python", reason="pip install --require-hashes -r .ci/requirements-deploy.txt"
)
validate = pytest.importorskip("kubernetes_validate")
schemas = pytest.importorskip("kubernetes_validate.utils")

CHART = DEPLOY / "helm" / "raftsched"
VERSIONS = 3  # Of Kubernetes: the newest of which there are schemas.
SECURE = {"tls": {"secretName": "certs"}}
TRUSTED = {"tls": {"insecureNetwork": True}, "tokens": {"enabled": False}}
ALL = SECURE | {
    "image": {"repository": "registry.example/raftsched", "digest": "sha256:" + "0" * 64},
    "pullSecrets": [{"name": "pull"}],
    "nodes": {
        "count": 5, "config": {"CACHE_MB": 512}, "storage": {"size": "5Gi", "className": "ssd"},
        "tolerations": [{"key": "raft", "operator": "Exists"}], "nodeSelector": {"disk": "ssd"},
        "priorityClassName": "high", "annotations": {"a": "b"},
    },
    "drain": {"tokenSecret": "drain"},
    "gateway": {"tlsSecret": "web"},
    "worker": {"enabled": True, "tokenSecret": "worker"},
    "networkPolicy": {"clients": [{"podSelector": {}}], "metrics": [{"podSelector": {}}]},
}  # fmt: skip
CASES: dict[str, Mapping[str, Any]] = {"secure": SECURE, "trusted": TRUSTED, "all": ALL}


def rendered(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    with helm.Chart.load(str(CHART)) as chart:
        texts = chart.render(dict(values), name="prod", namespace="ops")
    return [
        one
        for name, text in texts.items()
        if name.endswith(".yaml")
        for one in yaml.safe_load_all(text)
        if one
    ]


def of_kind(kind: str, values: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    [found] = [
        one for one in rendered(values)
        if one["kind"] == kind and (not name or one["metadata"]["name"] == name)
    ]  # fmt: skip
    return found


def container(pod_owner: Mapping[str, Any]) -> dict[str, Any]:
    [found] = pod_owner["spec"]["template"]["spec"]["containers"]
    return dict(found)


def variables(pod_owner: Mapping[str, Any], pod: str) -> dict[str, str]:
    return {one["name"]: one.get("value", pod) for one in container(pod_owner)["env"]}


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_takes_it(case: str) -> None:
    versions = list(dict.fromkeys(schemas.all_versions()))[-VERSIONS:]
    assert len(versions) == VERSIONS

    for one in rendered(CASES[case]):
        for version in versions:
            validate.validate(one, version, strict=True)


def test_a_fault_is_found() -> None:
    planted = of_kind("StatefulSet", SECURE)
    planted["spec"]["podManagementPolicies"] = "Parallel"

    with pytest.raises(validate.ValidationError):
        validate.validate(planted, validate.latest_version(), strict=True)


def test_the_chart_is_clean() -> None:
    found = helm.lint(str(CHART), SECURE)

    assert found["errors"] == []
    assert [one["error"] for one in found["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "tls.secretName"),
        (SECURE | {"nodez": 3}, "nodez"),
        (SECURE | {"nodes": {"count": 4}}, "count"),
        (SECURE | {"worker": {"enabled": True}}, "worker.tokenSecret"),
        (SECURE | {"tokens": {"enabled": False}}, "gateway.enabled=false"),
    ],
    ids=["no lock", "unknown key", "even", "a worker without a token", "a gateway without tokens"],
)
def test_what_would_not_work_is_refused(values: Mapping[str, Any], why: str) -> None:
    with pytest.raises(helm.HelmError, match=why):
        rendered(values)


def test_nodes_find_each_other_before_they_are_ready_and_stop_one_at_a_time() -> None:
    nodes = of_kind("StatefulSet", SECURE)
    headless = of_kind("Service", SECURE, "prod-nodes")["spec"]
    budget = of_kind("PodDisruptionBudget", SECURE, "prod")["spec"]
    pod = nodes["spec"]["template"]["spec"]

    assert nodes["spec"]["podManagementPolicy"] == "Parallel"
    assert nodes["spec"]["serviceName"] == "prod-nodes"
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    assert budget["maxUnavailable"] == 1
    assert pod["enableServiceLinks"] is False
    probe = container(nodes)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600
    assert probe["httpGet"] == {"path": "/healthz", "port": "metrics", "scheme": "HTTPS"}
    [drain] = container(nodes)["lifecycle"]["preStop"]["exec"]["command"][2:]
    assert drain.startswith("raftsched cluster drain ")


@pytest.mark.parametrize("case", CASES)
def test_each_pod_has_what_a_node_takes_and_all_know_the_same_members(
    case: str, tmp_path: Path
) -> None:
    nodes = of_kind("StatefulSet", CASES[case])
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).touch()

    loaded = [
        load(None, dict(in_place(variables(nodes, f"prod-{number}"), tmp_path)), {}).config
        for number in range(nodes["spec"]["replicas"])
    ]

    assert [one.name for one in loaded] == list(loaded[0].members)
    assert all(one.members == loaded[0].members for one in loaded)
    ports = {one["name"]: one["containerPort"] for one in container(nodes)["ports"]}
    assert ports == {"client": 7400, "peer": 7410, "metrics": 7420}
    assert {loaded[0].listen, loaded[0].listen_peer, loaded[0].http} == {
        f"0.0.0.0:{port}" for port in ports.values()
    }
    # A secret may be put in place of another; a node reads the files again.
    assert loaded[0].tokens == (case != "trusted")


def in_place(found: Mapping[str, str], folder: Path) -> Iterator[tuple[str, str]]:
    for name, text in found.items():
        yield name, text.replace("/tls/", f"{folder}/")


def test_a_worker_has_no_key_of_the_nodes_and_a_gateway_need_not_have_it() -> None:
    worker = of_kind("Deployment", ALL, "prod-worker")
    gateway = of_kind("Deployment", ALL, "prod-gateway")

    assert secrets_of(worker) == {"certs": {"ca.crt"}, "worker": None}
    assert secrets_of(gateway) == {"certs": {"ca.crt"}, "web": None}
    assert variables(gateway, "")["RAFTSCHED_CA_FILE"] == "/tls/ca.crt"
    mounts = {one["name"]: one["mountPath"] for one in container(gateway)["volumeMounts"]}
    words = container(gateway)["args"]
    assert words[words.index("--tls-key-file") + 1] == f"{mounts['gateway']}/tls.key"
    assert secrets_of(of_kind("Deployment", SECURE, "prod-gateway")) == {"certs": None}


def secrets_of(pod_owner: Mapping[str, Any]) -> dict[str, set[str] | None]:
    """Which keys of which secrets its pod holds; None: all."""
    volumes = pod_owner["spec"]["template"]["spec"]["volumes"]
    found = [one["secret"] for one in volumes if "secret" in one]
    return {
        one["secretName"]: {item["key"] for item in one["items"]} if "items" in one else None
        for one in found
    }


@pytest.mark.parametrize("case", CASES)
def test_no_pod_may_more_than_it_needs(case: str) -> None:
    owners = [one for one in rendered(CASES[case]) if one["kind"] in ("StatefulSet", "Deployment")]

    for one in owners:
        pod = one["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container(one)["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            "privileged": False, "readOnlyRootFilesystem": True,
        }  # fmt: skip
        assert one["spec"]["selector"]["matchLabels"].items() <= (
            one["spec"]["template"]["metadata"]["labels"].items()
        )
