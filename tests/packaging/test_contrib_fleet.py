"""The samples for many machines: parsed, and compared with bsd's settings, metrics and routes."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from bsd.core.fleet_settings import FleetSettings
from bsd.core.layout import Layout
from bsd.core.settings import Settings, load_settings
from bsd.daemon.fleet_report import fleet_report
from bsd.daemon.uploader import Sender
from bsd.fleet.host import HostDirectory
from bsd.fleet.manifest import manifest_key
from bsd.fleet.tombstones import DIRECTORY
from bsd.http.metrics import MetricsPage
from tests.docs.pages import blocks
from tests.http.fake_daemon import FakeDaemon
from tests.packaging.units import TOP

_FLEET = TOP / "contrib" / "fleet"
_KUBERNETES = sorted((_FLEET / "kubernetes").glob("*.yaml"))
_DASHBOARDS = sorted((_FLEET / "grafana").glob("*.json"))
_GIVEN_BY_PROMETHEUS = {"host", "instance", "job"}

Document = dict[str, Any]


def _documents(path: Path) -> list[Document]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def _settings(text: str, tmp_path: Path) -> Settings:
    path = tmp_path / "bsd.toml"
    path.write_text(text)
    return load_settings(path, root=tmp_path)


# --- Compose ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> Document:
    [document] = _documents(_FLEET / "compose.yaml")
    return document


def test_compose_pins_images_and_names_what_exists(compose: Document) -> None:
    services, wrong = compose["services"], []
    volumes, secrets = set(compose["volumes"]), set(compose["secrets"])
    for name, service in services.items():
        if "build" not in service and not re.search(r":v?[0-9]+\.[0-9.]+$", service["image"]):
            wrong.append(f"{name}: {service['image']}")
        wrong += [
            f"{name}: depends on {one}" for one in set(service.get("depends_on", ())) - {*services}
        ]
        wrong += [f"{name}: {one}" for one in set(service.get("secrets", ())) - secrets]
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if not ((_FLEET / source).exists() if source.startswith(".") else source in volumes):
                wrong.append(f"{name}: {volume}")
    assert wrong == []
    build = services["bsd"]["build"]
    assert (_FLEET / build["context"] / build["dockerfile"]).is_file()
    assert services["bsd"]["pid"] == "service:agent"
    assert "init" not in services["agent"], "the entry point refuses this namespace"
    assert services["bsd"]["user"] == services["agent"]["user"]


def test_compose_publishes_only_on_loopback_and_takes_passwords_from_the_environment(
    compose: Document,
) -> None:
    published = [port for one in compose["services"].values() for port in one.get("ports", ())]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    text = (_FLEET / "compose.yaml").read_text(encoding="utf-8")
    required = set(re.findall(r"\$\{(\w+):\?", text)) | {
        secret["environment"] for secret in compose["secrets"].values()
    }
    offered = re.findall(r"^(\w+)=", (_FLEET / "env.example").read_text(), re.MULTILINE)
    assert required == set(offered)
    assert set(re.findall(r"\$\{(\w+)", text)) == required


def test_composes_settings_are_bsds(compose: Document, tmp_path: Path) -> None:
    settings = _settings((_FLEET / "bsd.toml").read_text(encoding="utf-8"), tmp_path)
    environment = compose["services"]["bsd"]["environment"]
    assert all(Path(environment["HOME"]) in source.path.parents for source in settings.sources)
    assert environment["OPENCLAW_ROOT"].startswith(environment["HOME"])
    [job] = _documents(_FLEET / "prometheus.yaml")[0]["scrape_configs"]
    assert job["static_configs"][0]["labels"]["host"] == settings.fleet.host
    [target] = job["static_configs"][0]["targets"]
    # Another name in the header Host is refused.
    assert environment["BRAINSURGEON_CORS_ORIGINS"] == f"http://{target}"
    assert _extras(compose["services"]["bsd"]["build"]["args"]["EXTRAS"])


def _extras(text: str) -> bool:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(text.strip("[]").split(",")) <= set(project["optional-dependencies"])


# --- Kubernetes -------------------------------------------------------------------------------


def _pods() -> Iterator[tuple[str, Document, Document]]:
    for path in _KUBERNETES:
        for document in _documents(path):
            if "template" in document.get("spec", {}):
                yield path.name, document["spec"], document["spec"]["template"]["spec"]


def test_pods_run_bsd_without_rights_it_does_not_need() -> None:
    found = 0
    for name, _, pod in _pods():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod.get("shareProcessNamespace") or pod.get("hostPID"), name
        for container in (*pod["initContainers"], *pod["containers"]):
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False, name
            assert rights["capabilities"] == {"drop": ["ALL"]}, name
            if container["name"] == "bsd":
                found += 1
                assert rights["readOnlyRootFilesystem"] is True
                last = " ".join(container["lifecycle"]["preStop"]["exec"]["command"])
                assert last.endswith("bsd archive push")
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    assert container[probe]["httpGet"] == {"path": "/api/health", "port": "http"}
                variables = {one["name"]: one["value"] for one in container["env"]}
                mounts = {one["mountPath"] for one in container["volumeMounts"]}
                # Sessions and root in one mount, since two files are exchanged within one.
                assert variables["HOME"] in mounts
                assert variables["OPENCLAW_ROOT"].startswith(variables["HOME"])
                assert f"{variables['XDG_CONFIG_HOME']}/bsd" in mounts
    assert found == len(_KUBERNETES) == 2


def test_pods_mount_what_they_declare() -> None:
    named = {
        (document["kind"], document["metadata"]["name"])
        for path in _KUBERNETES
        for document in _documents(path)
    }
    for name, spec, pod in _pods():
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
        for container in (*pod["initContainers"], *pod["containers"]):
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= volumes, name
            for source in container.get("envFrom", ()):
                assert ("Secret", source["secretRef"]["name"]) in named
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in named
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_the_settings_of_pods_are_bsds(tmp_path: Path) -> None:
    texts = [
        document["data"]["bsd.toml"]
        for path in _KUBERNETES
        for document in _documents(path)
        if document["kind"] == "ConfigMap"
    ]
    assert len(texts) == 2
    for text in texts:
        settings = _settings(text, tmp_path)
        assert settings.fleet.bucket == "s3://example-bucket/fleet"
        assert settings.sources


# --- Prometheus and Grafana -------------------------------------------------------------------


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return every sample that bsd offers: name → its labels."""
    daemon, settings = FakeDaemon(), FleetSettings(host="one", bucket="file:///bucket")
    fleet = fleet_report(
        Layout(tmp_path_factory.mktemp("root")), settings, [Sender("bucket", [], 300.0)], 0.0
    )
    assert fleet is not None
    shared = {"fleet": fleet | {"last_success": "2026-11-27T09:00:00Z"}}
    page = MetricsPage(lambda: daemon.status() | shared, daemon.scheduler.status, daemon.health)
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(page.render().decode())
        for sample in family.samples
    }


def _objections(expression: str, metrics: dict[str, set[str]]) -> list[str]:
    """Return the metrics and labels in a PromQL expression that do not exist."""
    names = set(re.findall(r"\bbsd_\w+", expression))
    labels = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", expression))
    for some in re.findall(r"\bby \(([\w, ]+)\)", expression):
        labels |= set(re.split(r", *", some))
    known = _GIVEN_BY_PROMETHEUS.union(*(metrics.get(name, set()) for name in names))
    return sorted(names - set(metrics)) + sorted(labels - known)


def test_wrong_names_are_seen(metrics: dict[str, set[str]]) -> None:
    assert _objections('sum by (who) (bsd_none{x="1"})', metrics) == ["bsd_none", "who", "x"]


def test_the_alerts_use_metrics_that_exist(metrics: dict[str, set[str]]) -> None:
    [document] = _documents(_FLEET / "alerts.yaml")
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 6
    for rule in rules:
        assert _objections(rule["expr"], metrics) == [], rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


@pytest.mark.parametrize("path", _DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_what_exists(path: Path, metrics: dict[str, set[str]]) -> None:
    dashboard = json.loads(path.read_bytes())
    assert dashboard["title"]
    assert dashboard["uid"]
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert "host" in variables
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        for target in panel["targets"]:
            query = target.get("expr") or target["rawSql"]
            assert "host" in query, panel["title"]
            assert {*re.findall(r"\$\{?(\w+)", query)} - {*variables} <= {"__timeFilter"}
            if "expr" in target:
                assert _objections(query, metrics) == [], panel["title"]


def test_grafana_is_given_its_dashboards_and_sources(compose: Document) -> None:
    mounts = compose["services"]["grafana"]["volumes"]
    mounted = {(_FLEET / mount.split(":")[0]).resolve() for mount in mounts if mount[0] == "."}
    assert {path.resolve() for path in _DASHBOARDS} <= mounted
    provisioning = _FLEET / "grafana" / "provisioning"
    [provider] = _documents(provisioning / "dashboards" / "bsd.yaml")[0]["providers"]
    directories = {mount.split(":")[1].rpartition("/")[0] for mount in mounts if ".json" in mount}
    assert directories == {provider["options"]["path"]}
    sources = _documents(provisioning / "datasources" / "bsd.yaml")[0]["datasources"]
    assert {source["type"] for source in sources} == {"prometheus", "postgres"}


# --- rights -----------------------------------------------------------------------------------


def test_the_documented_rights_cover_all_keys() -> None:
    text = (TOP / "contrib" / "docs" / "fleet.md").read_text(encoding="utf-8")
    [block] = [one for one in blocks(text) if one.kind == "json"]
    statements = {one["Sid"]: one for one in json.loads(block.text)["Statement"]}

    def allowed(sid: str, key: str) -> bool:
        resources = statements[sid]["Resource"]
        listed = [resources] if isinstance(resources, str) else resources
        return any(fnmatchcase(f"arn:aws:s3:::my-archive/bsd/{key}", one) for one in listed)

    host = HostDirectory("ada", "1a2b3c4d")
    for key in (f"{host.objects}/aa", f"{host.parquet}/usage/part.parquet", "bsd-check-aa"):
        assert allowed("Write", key)
        assert allowed("ReadAndDelete", key)
    for key in (manifest_key(host, 7), f"{DIRECTORY}/aa.json"):
        assert allowed("CreateOnly", key)
        assert not allowed("Write", key)
