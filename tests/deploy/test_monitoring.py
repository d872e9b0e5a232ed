"""Alerts, dashboard and the documentation's queries against what the programs measure.

What Prometheus itself says of them is in `tests/upstream/test_promrules.py`.
"""

import json
import re
from pathlib import Path

import pytest
import yaml

from controller import metrics as controller_metrics
from controller import settings as controller_settings
from controller.decide import decide
from kubeletplugin import metrics as plugin_metrics
from kubeletplugin import settings as plugin_settings
from tests.support.cluster_story import Story
from tests.support.scraping import series
from tests.support.seen import a_look, a_record

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
PAGE = (ROOT / "docs/monitoring.md").read_text()
RULES = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
QUERIES = re.findall(r"^```promql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
EVERY = [
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in RULES),
    *(pytest.param(target["expr"], id=f"{title} {target['refId']}") for title, target in TARGETS),
    *(pytest.param(query, id=f"query {number}") for number, query in enumerate(QUERIES)),
]

FAMILIES = {family.name: family for family in (*plugin_metrics.FAMILIES, *controller_metrics.FAMILIES)}
OTHERS = {
    "DCGM_FI_DEV_GPU_UTIL": {"UUID"},
    "kube_pod_resourceclaim_info": {"namespace", "pod", "uid", "claim_name", "resourceclaim_name"},
    "process_resident_memory_bytes": set(),
}
"""Labels of what others show: dcgm-exporter, kube-state-metrics (docs/metrics/workload/pod-metrics.md), prometheus_client."""
TARGET_LABELS = {"job", "instance", "pod"}
"""What Prometheus adds to all that it scrapes in a cluster."""


def labels_of(metric: str) -> set[str]:
    """By name as in a query; KeyError for one that nobody shows."""
    if metric in OTHERS:
        return OTHERS[metric] | TARGET_LABELS
    for suffix in ("_bucket", "_count", "_sum"):
        base = metric.removesuffix(suffix)
        if base != metric and base in FAMILIES and FAMILIES[base].kind == "histogram":
            return {*FAMILIES[base].labels, *TARGET_LABELS, *({"le"} if suffix == "_bucket" else ())}
    if FAMILIES[metric].kind == "histogram":
        raise KeyError(metric)
    return {*FAMILIES[metric].labels, *TARGET_LABELS}


def metrics_in(expr: str) -> list[tuple[str, str]]:
    """Name and matchers of every selector."""
    return re.findall(r"\b((?:lanewise|process|kube|DCGM)_\w+)(?:\{([^}]*)\})?", expr)


def kept(expr: str) -> set[str]:
    """Labels that the whole expression still has, where its first word is an aggregation by some; all that occur otherwise."""
    outer = re.match(r"\s*(?:count|sum|min|max|avg) by \(([^)]*)\)", expr)
    groups = [outer[1]] if outer else re.findall(r"\bby \(([^)]*)\)", expr)
    return {label.strip() for group in groups for label in group.split(",")}


@pytest.mark.parametrize("expr", EVERY)
def test_metrics_exist_with_the_labels_that_are_asked_for(expr):
    """A renamed metric or label would make an alert silent for ever."""
    found = metrics_in(expr)
    assert found
    for name, matchers in found:
        asked = {label for label, _ in re.findall(r"(\w+)\s*(=~|!~|!=|=)", matchers)}
        assert asked <= labels_of(name), name
    known = {label for name, _ in found for label in labels_of(name)}
    known |= set(re.findall(r'"(\w+)", "\$1"', expr))  # made by label_replace
    for group in re.findall(r"\b(?:by|on|group_left) ?\(([^)]*)\)", expr):
        assert {label.strip() for label in group.split(",") if label.strip()} <= known


@pytest.fixture(scope="module")
def emitted():
    """(metric, label) → values as the programs write them."""
    plugin, controller = plugin_metrics.Metrics("node-a"), controller_metrics.Metrics()
    plugin.watch(lambda: a_look(records=(a_record(1, 0), a_record(2, 0, admin=True))))
    story = Story()
    story.starts()
    controller.begin(type("Term", (), {"watched": lambda _: {}, "silences": lambda _: {}})())
    controller.decided("node-a", story.decide(), 0)
    story.look()
    story.after(100)
    controller.decided("node-b", story.decide(), 0)
    found = {}
    for page in (plugin.page, controller.page):
        for name, labels in series(page):
            for label, value in labels:
                found.setdefault((name, label), set()).add(value)
    return found


@pytest.mark.parametrize("expr", EVERY)
def test_values_that_are_asked_for_are_written(expr, emitted):
    """`state="held"` is a state, and `outcome="ok"` an outcome."""
    for name, matchers in metrics_in(expr):
        for label, value in re.findall(r'(\w+)="([^"$]*)"', matchers):
            assert value in emitted[name, label], (name, label, value)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_name_labels_that_they_have(rule):
    """`node <no value>` helps nobody; each alert says what it means and how grave it is."""
    said = " ".join(rule["annotations"].values())
    assert rule["annotations"].keys() == {"summary", "description"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= kept(rule["expr"])
    assert f"`{rule['alert']}`" in PAGE


def test_reasons_in_alerts_are_those_of_the_controller():
    """They are words in `controller/decide.py`."""
    source = Path(decide.__code__.co_filename).read_text()
    for rule in RULES:
        for reason in re.findall(r'reason!?=~?"([^"]*)"', rule["expr"]):
            assert all(f'"{word}"' in source for word in reason.split("|"))


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{title} {target['refId']}" for title, target in TARGETS])
def test_legends_name_labels_that_the_series_have(title, target):
    """A legend without a label is empty."""
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept(target["expr"])


def test_the_dashboard_is_one():
    """Panels have ids of their own, lie in Grafana's 24 columns, do not overlap, and ask the data source that is chosen."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        pos = panel["gridPos"]
        cells = {(x, y) for x in range(pos["x"], pos["x"] + pos["w"]) for y in range(pos["y"], pos["y"] + pos["h"])}
        assert pos["x"] + pos["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        for asked in (panel, *panel.get("targets", ())):
            assert panel["type"] == "row" or asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["type"] == "row" or panel["description"]
    (node,) = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "node"]
    assert metrics_in(node["definition"]) == [("lanewise_node_published", "")]


def test_every_metric_is_of_some_use():
    """In the dashboard, an alert or a query: what nobody looks at costs everybody."""
    used = {name for expr in EVERY for name, _ in metrics_in(expr.values[0])}
    unused = {name for name in FAMILIES if not any(each.startswith(name) for each in used)}
    assert unused == {
        "lanewise_ready",  # whole sentences are at /readyz; for whoever watches single nodes
        "lanewise_registered",
        "lanewise_watch_open",
        "lanewise_events_lost_total",
    }


def test_scraping_finds_the_ports():
    """Those of the manifests; the plugin's by number, because its pods declare none."""
    by_kind = {obj["kind"]: obj for obj in yaml.safe_load_all((MONITORING / "scrape.yaml").read_text())}
    workloads = {}
    for name, settings in (("kubeletplugin", plugin_settings), ("controller", controller_settings)):
        workload = yaml.safe_load((ROOT / f"deploy/manifests/{name}.yaml").read_text())
        template = workload["spec"]["template"]
        (container,) = template["spec"]["containers"]
        told = settings.parse(container["args"], {"NODE_NAME": "node-a"})
        workloads[name] = template["metadata"]["labels"], container, told.http_port
    labels, _, port = workloads["kubeletplugin"]
    service = by_kind["Service"]
    assert (service["spec"]["selector"], service["metadata"]["labels"]) == (labels, labels)
    assert [(each["port"], each["targetPort"]) for each in service["spec"]["ports"]] == [(port, port)]
    assert by_kind["ServiceMonitor"]["spec"]["selector"]["matchLabels"] == labels
    assert [each["port"] for each in by_kind["ServiceMonitor"]["spec"]["endpoints"]] == [
        service["spec"]["ports"][0]["name"]
    ]
    labels, container, port = workloads["controller"]
    assert by_kind["PodMonitor"]["spec"]["selector"]["matchLabels"] == labels
    (declared,) = container["ports"]
    assert declared["containerPort"] == port
    assert [each["port"] for each in by_kind["PodMonitor"]["spec"]["podMetricsEndpoints"]] == [declared["name"]]


def test_every_file_is_applied():
    """One that kustomize does not name is not installed."""
    customization = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    (config,) = customization["configMapGenerator"]
    named = {*customization["resources"], *(each.partition("=")[2] for each in config["files"])}
    assert named | {"kustomization.yaml"} == {path.name for path in MONITORING.iterdir()}
