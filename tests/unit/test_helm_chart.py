"""The Helm chart: every party's objects are valid for Kubernetes, and as closed as the compose files are."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from common import __version__
from owner_node.cli import application
from owner_node.config import load

pytestmark = pytest.mark.needs("chart")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "tessera"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
FULL: dict[str, Any] = {
    "configuration": '[owner]\nid = "north"\n',
    "image": {"prefix": "registry.example/tessera", "tag": "0.1.0", "pullSecrets": ["pull"]},
    "secretEnvironment": {"DATABASE_PASSWORD": {"secret": "database", "key": "password"}},
    "secretFiles": {"mail-password": {"secret": "mail", "key": "password"}},
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    "network": {"to": [{"cidr": "203.0.113.7/32", "port": 8443}]},
    "metrics": {"port": 9464, "namespaceLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    "console": {"port": 8080, "namespaceLabels": {"kubernetes.io/metadata.name": "ingress"}},
    "storage": {"size": "100Gi", "className": "encrypted"},
    "extraEnv": [{"name": "https_proxy", "value": "http://proxy.hospital.example:3128"}],
    "serviceMonitor": {"create": True, "labels": {"release": "prometheus"}},
    "tolerations": [{"key": "hospital", "operator": "Exists"}],
}
PARTIES = ("owner-node", "aggregator")


def rendered(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects of a release called `first`, by kind."""
    from helm_python import Chart

    files = Chart.load(CHART).render(values, name="first", namespace="study")
    texts = [text for path, text in files.items() if not path.endswith("NOTES.txt")]
    objects = [each for text in texts for each in yaml.safe_load_all(text) if each]
    return {each["kind"]: each for each in objects}


def pod_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the pod of a release."""
    return rendered(values)["StatefulSet"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("values", [{}, FULL, {"setUp": True}], ids=["defaults", "everything", "set up"])
@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_kubernetes_takes_all_objects(party, values, version):
    """Every object has the form that Kubernetes' own schemas ask for."""
    import kubernetes_validate

    found = rendered({"party": party, **values})
    assert {"StatefulSet", "Service", "NetworkPolicy", "ServiceAccount"} <= set(found)
    assert ("ConfigMap" in found) == ("configuration" in values)
    # The Prometheus operator's own kind, of which Kubernetes knows no schema.
    monitor = found.pop("ServiceMonitor", None)
    assert (monitor is not None) == (values is FULL)
    for each in found.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_helm_finds_nothing():
    """`helm lint --strict` has no warning, and the chart is of this version."""
    from helm_python import Chart, lint

    report = lint(CHART, {}, strict=True)
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []
    metadata = Chart.load(CHART).metadata
    assert metadata["appVersion"] == __version__
    # Versions of charts are semantic ones.
    assert metadata["version"] == __version__.replace(".dev", "-dev")


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("values", [{}, FULL], ids=["defaults", "everything"])
def test_nothing_is_open(party, values):
    """No root, no capability, no writable file system but the volume, no token, one daemon, one volume."""
    found = rendered({"party": party, **values})
    spec = found["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 1
    assert spec["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    own = pod["securityContext"]
    assert f"\nUSER {own['runAsUser']}:{own['runAsGroup']}\n" in DOCKERFILE
    for container in pod["containers"] + pod.get("initContainers", []):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    policy = found["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    reached = [port["port"] for rule in policy["ingress"] or [] for port in rule["ports"]]
    pages = ["console", "metrics"] if values else []
    assert reached == (["owners"] if party == "aggregator" else []) + pages
    assert all("from" in rule for rule in policy["ingress"] or [])


def test_secrets_are_in_no_object():
    """Objects name secrets; files of them become private to the daemon before it starts."""
    found = rendered({"party": "owner-node", **FULL})
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    first = pod["initContainers"][0]
    assert "umask 077" in first["command"][-1]
    assert "/run/mounted/mail-password > /run/secrets/tessera/mail-password" in first["command"][-1]
    memory = {each["name"] for each in pod["volumes"] if each.get("emptyDir", {}).get("medium") == "Memory"}
    assert {"secrets", "temporary"} <= memory
    assert "mounted" not in {each["name"] for each in pod["containers"][0]["volumeMounts"]}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"party": "somebody"}, "party"),
        ({"replicas": 2}, "replicas"),
        ({"affinity": {}}, "affinity"),
        ({"storage": {"accessMode": "ReadWriteMany"}}, "accessMode"),
        ({"secretFiles": {"../key": {"secret": "s", "key": "k"}}}, "../key"),
        ({"metrics": {"port": 9464}}, "namespaceLabels"),
        ({"serviceMonitor": {"create": True}}, "port"),
        ({"userId": 0}, "userId"),
        ({"network": {"dns": {"podLabels": None}}}, "dns"),
    ],
)
def test_wrong_values_are_refused(values, word):
    """A value that is unknown, wrong or unsafe stops the installation, by name."""
    from helm_python import HelmError

    with pytest.raises(HelmError, match=word):
        rendered(values)


def test_probes_are_commands():
    """The commands of probes exist; a party that waits for set-up has no probe."""
    status = application().commands["status"]
    assert {"--check", "--alive"} <= {name for option in status.params for name in option.opts}
    for party, alive in (("aggregator", "--check"), ("owner-node", "--alive")):
        (container,) = pod_of({"party": party})["containers"]
        assert container["readinessProbe"]["exec"]["command"] == [party, "status", "--check"]
        assert container["livenessProbe"]["exec"]["command"] == [party, "status", alive]
        assert container["livenessProbe"]["timeoutSeconds"] > 10
        assert not {"readinessProbe", "livenessProbe"} & set(
            pod_of({"party": party, "setUp": True})["containers"][0]
        )


def test_the_page(tmp_path):
    """The values of docs/kubernetes.md are values of the chart, and the configuration in them is one."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    values = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    found = rendered(values)
    assert len(found["NetworkPolicy"]["spec"]["egress"]) == 3
    (tmp_path / "owner.toml").write_text(found["ConfigMap"]["data"]["owner.toml"])
    owner = load(tmp_path / "owner.toml")
    volume = Path("/var/lib/tessera")
    assert all(
        path.is_relative_to(volume)
        for path in (owner.owner.state_dir, owner.tls.cert, owner.tls.key, owner.tls.ca)
    )


def test_every_value_arrives() -> None:
    """Settings of the pod stand where Kubernetes reads them, beside those that the chart makes itself."""
    found = rendered({"party": "owner-node", **FULL})
    template = found["StatefulSet"]["spec"]["template"]
    assert template["spec"]["tolerations"] == FULL["tolerations"]
    (daemon, console), (first,) = template["spec"]["containers"], template["spec"]["initContainers"]
    assert [each["name"] for each in daemon["env"]] == ["DATABASE_PASSWORD", "https_proxy"]
    assert (console["env"], console["volumeMounts"]) == (daemon["env"], daemon["volumeMounts"])
    assert (console["args"], console["image"]) == (["console", "--serve"], daemon["image"])
    assert [each["name"] for each in daemon["ports"] + console["ports"]] == ["metrics", "console"]
    assert first["resources"]["limits"]["memory"] == "64Mi"
    monitor, service = found["ServiceMonitor"], found["Service"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "tessera"
    assert {each["port"] for each in monitor["spec"]["endpoints"]} <= {
        each["name"] for each in service["spec"]["ports"]
    }


def test_a_claim_that_is_there() -> None:
    """The state is in the claim that is named, and no other is made."""
    import kubernetes_validate

    found = rendered({"party": "owner-node", "storage": {"existingClaim": "kept"}})["StatefulSet"]
    kubernetes_validate.validate(found, "1.34", strict=True)
    assert "volumeClaimTemplates" not in found["spec"]
    volumes = {each["name"]: each for each in found["spec"]["template"]["spec"]["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"] == {"claimName": "kept"}


@pytest.mark.parametrize(
    ("dns", "to", "port"),
    [
        (
            {},
            [
                {
                    "namespaceSelector": {"matchLabels": {}},
                    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                }
            ],
            53,
        ),
        (
            {
                "port": 5353,
                "namespaceLabels": {"kubernetes.io/metadata.name": "openshift-dns"},
                "podLabels": {"k8s-app": None, "dns.operator.openshift.io/daemonset-dns": "default"},
            },
            [
                {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}},
                    "podSelector": {"matchLabels": {"dns.operator.openshift.io/daemonset-dns": "default"}},
                }
            ],
            5353,
        ),
        (
            {"podLabels": {"k8s-app": None}, "cidrs": ["169.254.20.10/32"]},
            [{"ipBlock": {"cidr": "169.254.20.10/32"}}],
            53,
        ),
    ],
    ids=["kube-dns", "OpenShift", "NodeLocal"],
)
def test_name_servers_of_other_clusters(dns: dict[str, Any], to: list[dict[str, Any]], port: int) -> None:
    """A pod reaches the name servers of its cluster, and no others."""
    import kubernetes_validate

    policy = rendered({"party": "owner-node", "network": {"dns": dns}})["NetworkPolicy"]
    kubernetes_validate.validate(policy, "1.34", strict=True)
    (rule,) = policy["spec"]["egress"]
    assert rule["to"] == to
    assert rule["ports"] == [{"port": port, "protocol": each} for each in ("UDP", "TCP")]


def test_a_cluster_that_assigns_users() -> None:
    """OpenShift refuses a pod that names a user; it still is no root."""
    assert pod_of({"party": "owner-node", "userId": None})["securityContext"].keys() == {
        "runAsNonRoot",
        "fsGroupChangePolicy",
        "seccompProfile",
    }
