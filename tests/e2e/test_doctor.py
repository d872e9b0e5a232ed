"""`lanewise doctor` on the real cluster's node, with the rights of deploy/doctor-job.yaml and no others."""

import json
import subprocess
import sys
from functools import partial

import pytest
import yaml

from tests.cluster.lanewise import NAMESPACE, ROOT, until
from tests.cluster.lanewise_image import IMAGE, build
from tests.cluster.pki import NODE

ACCOUNT = "lanewise-doctor"


@pytest.fixture
def doctor(site):
    """The command as the Job would run it; gives exit code and findings by check."""
    objects = list(yaml.safe_load_all((ROOT / "deploy/doctor-job.yaml").read_text()))
    rights = [obj for obj in objects if obj["kind"] != "Job"]
    site.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": rights}))
    kubeconfig = site.cluster.kubeconfig_for(site.cluster.bound_token(NAMESPACE, ACCOUNT))
    command = [
        *(sys.executable, "-m", "cli.main", "doctor", "-o", "json"),
        f"--kubeconfig={kubeconfig}",
        f"--node-name={NODE}",
        f"--registry-dir={site.cluster.plugins_registry}",
        f"--plugin-dir={site.lanewise.plugin_dir}",
        f"--cdi-dir={site.cluster.cdi_dir}",
        "--host-cdi-dir=/var/run/cdi",  # in the namespace of the node's programs
        f"--runtime-socket={site.cluster.containerd_socket}",
        f"--machine={site.lanewise.machine}",
    ]

    def run():
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert not done.stderr
        found = {}
        for finding in json.loads(done.stdout)["findings"]:
            found.setdefault(finding["check"], []).append((finding["level"], finding["what"]))
        return done.returncode, found

    yield run
    for obj in rights:
        where = ("-n", obj["metadata"]["namespace"]) if "namespace" in obj["metadata"] else ()
        site.cluster.kubectl("delete", obj["kind"], obj["metadata"]["name"], *where)


def bad(found):
    return {check: lines for check, findings in found.items() if (lines := [f for f in findings if f[0] != "ok"])}


def test_a_cluster_that_works_is_well(site, doctor):
    """The runtime tells its CDI directories itself, the API server its gates, and who may do what."""
    code, found = doctor()
    assert bad(found) == {
        # The suite's controller runs with --leader-election=false.
        "controller": [("warning", "no controller has ever led here, or it runs with --leader-election=false")]
    }
    assert code == 1
    ((_, runtime),) = found["runtime cdi"]
    assert runtime == f"CDI is on and reads /var/run/cdi (containerd's answer on {site.cluster.containerd_socket})"
    ((_, gates),) = found["feature gates"]
    assert "DRADeviceTaints" in gates
    assert len(found["rights"]) == 2


def test_what_is_broken_is_found(site, doctor):
    """The plugin is stopped, a right and a policy are taken away, a CDI file is broken; and all is well again after."""
    site.plugin.stop()
    until("the controller has seen it", lambda: "unreachable" in json.dumps(site.slices()))
    broken = site.cluster.cdi_dir / "gpu.lanewise.dev-claim_broken.json"
    broken.write_text("{")
    site.cluster.kubectl("delete", "validatingadmissionpolicybinding", "lanewise-slices")
    site.cluster.kubectl("delete", "rolebinding", "lanewise-node", "-n", NAMESPACE)
    try:
        code, found = doctor()
    finally:
        broken.unlink()
        for name in ("policies", "rbac"):
            site.cluster.apply(ROOT / f"deploy/manifests/{name}.yaml")
    assert code == 2
    told = bad(found)
    told.pop("controller")
    assert {check: {level for level, _ in lines} for check, lines in told.items()} == {
        "sockets": {"failure"},
        "cdi files": {"failure", "warning"},
        "policies": {"failure"},
        "rights": {"failure"},
        "inventory": {"failure"},
    }
    leases = ", ".join(f"{verb} leases.coordination.k8s.io" for verb in ("create", "patch", "delete"))
    assert told["rights"] == [("failure", f"lanewise-node may not {leases}")]
    site.lanewise.start_plugin()
    site.published()
    assert set(bad(doctor()[1])) == {"controller"}


def test_the_job_tells_the_same_from_the_image(site, doctor, tmp_path):
    """deploy/doctor-job.yaml as it is, but for the node's name, the image, and the simulated machine."""
    site.cluster.import_image(build(tmp_path / "image"))
    machine = site.cluster.plugins_dir / "machine.yaml"
    machine.write_bytes(site.lanewise.machine.read_bytes())
    (job,) = [o for o in yaml.safe_load_all((ROOT / "deploy/doctor-job.yaml").read_text()) if o["kind"] == "Job"]
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeName"] == "NODE"
    pod["nodeName"] = NODE
    pod["containers"][0] |= {"image": IMAGE, "imagePullPolicy": "Never"}
    pod["containers"][0]["command"] += ["--machine=/var/lib/kubelet/plugins/machine.yaml", "-o=json"]
    site.cluster.apply(json.dumps(job))
    try:
        kubectl = partial(site.cluster.kubectl, "-n", NAMESPACE)
        ended = partial(kubectl, "get", "job/lanewise-doctor", "-o", "jsonpath={.status.failed}{.status.succeeded}")
        until("the Job has ended", ended, 90)
        told = json.loads(kubectl("logs", "job/lanewise-doctor"))
        assert ended() == "1"
        here = doctor()[1]
        (socket, controller) = [each for each in told["findings"] if each["level"] != "ok"]
        assert controller["check"] == "controller"
        # The suite's plugin is a process of the test's, and names its socket by a path that no pod has.
        assert socket["what"].startswith(f"{site.lanewise.plugin_dir}/dra.sock does not answer: ")
        assert {each["check"] for each in told["findings"]} == set(here)
    finally:
        site.cluster.kubectl("-n", NAMESPACE, "delete", "job", "lanewise-doctor")
        machine.unlink()
