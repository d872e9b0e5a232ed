"""Alerts, dashboard and the documentation's queries before Prometheus' own rule parser and query engine."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TESTS = Path(__file__).parent / "promrules/tests.yaml"
SPEC = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text())["spec"]
PANELS = json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())["panels"]


def judged(program, folder, tests, **files):
    """What is wrong with tests and rule files, given as values; empty when nothing is."""
    for name, content in {"tests": tests, **files}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    ran = subprocess.run([program, str(folder / "tests.yaml")], capture_output=True, text=True)
    assert ran.returncode in {0, 1}, ran.stderr
    assert bool(ran.stdout) is (ran.returncode == 1)
    return ran.stdout


@pytest.fixture
def tests():
    return yaml.safe_load(TESTS.read_text())


def test_alerts_fire_when_they_should(built, tmp_path, tests):
    """And not before, and not for nodes and watches that are well; the documentation's queries give what it says."""
    assert judged(built("promrules"), tmp_path, tests, alerts=SPEC) == ""


def test_the_documentations_queries_are_the_tested_ones(tests):
    """Written twice, so held against each other."""
    queries = re.findall(r"^```promql\n(.*?)^```", (ROOT / "docs/monitoring.md").read_text(), re.DOTALL | re.MULTILINE)
    assert queries == [query["expr"] for test in tests["tests"] for query in test.get("promql_expr_test", ())]


def test_the_dashboards_queries_are_understood(built, tmp_path):
    """With what Grafana puts in place of its variables."""
    queries = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
    filled = [query.replace("$__rate_interval", "5m").replace("$node", "node-a|node-b") for query in queries]
    assert not any("$" in query for query in filled)
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(filled)]
    assert len(rules) > 20
    dashboard = {"groups": [{"name": "dashboard", "rules": rules}]}
    assert judged(built("promrules"), tmp_path, {"rule_files": ["dashboard.yaml"]}, dashboard=dashboard) == ""


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(lambda rules, _: rules[0].update(expr="absent(lanewise_leader"), "parse error", id="expression"),
        pytest.param(
            lambda rules, _: rules[0].update(expr="absent(lanewise_leader == 0)"), "fires for", id="condition"
        ),
        pytest.param(lambda rules, _: rules[0].update({"for": "1h"}), "fires for []", id="duration"),
        pytest.param(lambda rules, _: rules[0]["labels"].update(severity="info"), "should", id="labels"),
        pytest.param(lambda rules, _: rules[0].update(alert="Other"), "there is no alert", id="name"),
        pytest.param(
            lambda rules, _: rules[0]["annotations"].update(summary="{{ $labels.node "), "template", id="template"
        ),
        pytest.param(
            lambda _, tests: tests["tests"][-1]["promql_expr_test"][0]["exp_samples"][0].update(value=1),
            "should be",
            id="value",
        ),
        pytest.param(
            lambda _, tests: tests["tests"][-1]["promql_expr_test"][1].update(
                expr="kube_pod_resourceclaim_info * on (namespace) lanewise_claim_device"
            ),
            "many-to-many",
            id="join",
        ),
    ],
)
def test_the_judge_sees(built, tmp_path, tests, spoil, words):
    """A fault of each kind is told: the tests above could fail."""
    spec = yaml.safe_load(yaml.safe_dump(SPEC))
    spoil(spec["groups"][0]["rules"], tests)
    assert words in judged(built("promrules"), tmp_path, tests, alerts=spec)
