"""Every folder of examples/ on the real cluster: its pods run, and see as many GPUs as they are meant to."""

from pathlib import Path

import pytest
import yaml

from tests.cluster.lanewise import until

EXAMPLES = Path(__file__).parents[2] / "examples"
GPUS = {
    "one-gpu": [1],
    "claim-template": [1, 1],
    "shared-claim": [1, 1],
    "choose-by-attributes": [1],
    "alternatives": [2],
    "two-gpus-one-numa-node": [2],
    "monitoring": [8],
    "extended-resource": [1],
}
"""For each pod of an example, the GPUs that its containers see."""


def test_every_example_is_run() -> None:
    """A new folder needs a line above."""
    folders = {path.parent.name for path in EXAMPLES.glob("*/*.yaml")} - {"machines"}
    assert folders == set(GPUS)


@pytest.mark.parametrize("name", GPUS)
def test_example(site, name):
    """Applied as the README says."""
    folder = EXAMPLES / name
    objects = [each for path in folder.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    namespace = next((o["metadata"]["namespace"] for o in objects if "namespace" in o["metadata"]), "default")
    try:
        site.cluster.kubectl("apply", "-f", str(folder))

        def running() -> list[dict]:
            items = site.cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
            return [each for each in items if each["status"].get("phase") == "Running"]

        until("the pods run", lambda: len(running()) == len(GPUS[name]), 90)
        for each, number in zip(running(), GPUS[name], strict=True):
            for container in each["spec"]["containers"]:
                where = ("-n", namespace, each["metadata"]["name"], "-c", container["name"])
                output = site.cluster.kubectl("logs", *where)
                assert output.count("=GPU-") == output.count("/dev/nvidia") == number, output
    finally:
        site.cluster.kubectl("delete", "-f", str(folder), "--ignore-not-found", "--timeout=90s")
    until("nothing is left", lambda: site.kept() == (set(), set(), {}), 60)
