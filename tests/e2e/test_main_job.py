"""The main job: a pod asks for a GPU and gets exactly that one, and when it goes everything is gone."""

from tests.cluster.lanewise import until
from tests.e2e.site import Site, claim, pod, request, template


def allocated(site: Site, name: str) -> list[str]:
    """Device names that the scheduler gave to a claim."""
    found = next(each for each in site.claims() if each["metadata"]["name"] == name)
    return [result["device"] for result in found["status"]["allocation"]["devices"]["results"]]


def test_a_pod_gets_exactly_its_gpu(site):
    """Environment, device node and inventory all name the device that the scheduler chose, with its own numbers."""
    site.apply(claim("one"), pod("one", claims=["one"]))
    site.running("one")
    (device,) = allocated(site, "one")
    published = site.devices()[device]
    seen = site.seen("one")
    name = device.upper().replace("-", "_")
    assert seen.uuids == {name: published["attributes"]["uuid"]["string"]}
    assert seen.products == {name: published["attributes"]["productName"]["string"]}
    found = next(gpu for gpu in site.inventory()["spec"]["gpus"] if gpu["name"] == device)
    assert seen.nodes == {f"/dev/nvidia{found['minor']}": (195, found["minor"])}
    assert published["capacity"]["memory"]["value"] == "81559Mi"


def test_a_claim_from_a_template_is_gone_with_its_pod(site):
    """Generated, prepared, released, deleted; nothing stays on the node."""
    site.apply(template("whole"), pod("generated", templates=["whole"]))
    site.running("generated")
    assert len(site.seen("generated").uuids) == 1
    records, files, holds = site.kept()
    assert len(records) == len(files) == len(holds) == 1
    site.delete(pod("generated"))
    until("nothing is left", lambda: site.kept() == (set(), set(), {}) and not site.claims())


def test_the_ninth_pod_waits_and_runs_when_one_goes(site):
    """Nine pods on eight GPUs: eight different devices, one pod pending for a reason, then served."""
    pods = [pod(f"p{n}", templates=["each"]) for n in range(9)]
    site.apply(template("each"), *pods[:8])
    site.running(*pods[:8])
    uuids = [uuid for each in pods[:8] for uuid in site.seen(each["metadata"]["name"]).uuids.values()]
    assert len(set(uuids)) == 8
    site.apply(pods[8])
    site.pending_because("p8", "cannot allocate all claims")
    site.delete(pods[3])
    site.running("p8")
    assert list(site.seen("p8").uuids.values()) == [uuids[3]]


def test_one_claim_is_shared_by_containers_and_by_pods(site):
    """Two containers of one pod, and a second pod, see the same GPU; it is released with the last of them."""
    site.apply(
        claim("shared"), pod("first", claims=["shared"], containers=["a", "b"]), pod("second", claims=["shared"])
    )
    site.running("first", "second")
    seen = site.seen("second")
    assert site.seen("first", "a") == site.seen("first", "b") == seen
    assert len(seen.uuids) == 1
    site.delete(pod("first"))
    assert len(site.kept()[0]) == 1
    assert site.seen("second") == seen
    site.delete(pod("second"))
    until("nothing is left", lambda: site.kept() == (set(), set(), {}))


def test_two_claims_meet_in_one_container(site):
    """Neither hides the other: two GPUs, two names in the environment, two device nodes."""
    site.apply(claim("left"), claim("right"), pod("both", claims=["left", "right"]))
    site.running("both")
    seen = site.seen("both")
    names = {device.upper().replace("-", "_") for each in ("left", "right") for device in allocated(site, each)}
    assert set(seen.uuids) == names
    assert (len(seen.uuids), len(seen.nodes)) == (2, 2)


def test_several_requests_and_devices_in_one_claim(site):
    """Three devices by two requests; the container sees all of them."""
    site.apply(claim("three", request("pair", count=2), request("single")), pod("three", claims=["three"]))
    site.running("three")
    assert len(set(allocated(site, "three"))) == 3
    assert len(site.seen("three").nodes) == 3


def test_first_available_falls_back_to_what_exists(site):
    """The kubelet gets the main request's name, so the container gets the device of the chosen alternative."""
    preferred = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "b200", "deviceClassName": "gpu.lanewise.dev", "selectors": [{"cel": {"expression": "false"}}]},
            {"name": "any", "deviceClassName": "gpu.lanewise.dev"},
        ],
    }
    wish = claim("wish")
    wish["spec"]["devices"]["requests"] = [preferred]
    chosen = pod("wish", claims=["wish"])
    chosen["spec"]["containers"][0]["resources"]["claims"][0]["request"] = "gpu"
    site.apply(wish, chosen)
    site.running("wish")
    assert len(site.seen("wish").uuids) == 1


def test_selectors_choose_by_product_memory_and_driver(site):
    """What users write in claims, answered by the real CEL."""
    domain = "device.attributes['gpu.lanewise.dev']"
    wanted = [
        f"{domain}.productName.contains('H100')",
        "device.capacity['gpu.lanewise.dev'].memory.compareTo(quantity('70Gi')) >= 0",
        f"{domain}.driverVersion.isGreaterThan(semver('580.0.0'))",
    ]
    too_much = "device.capacity['gpu.lanewise.dev'].memory.compareTo(quantity('100Gi')) >= 0"
    site.apply(claim("fits", request(selectors=wanted)), pod("fits", claims=["fits"]))
    site.apply(claim("large", request(selectors=[too_much])), pod("large", claims=["large"]))
    site.running("fits")
    site.pending_because("large", "cannot allocate all claims")


def test_admin_access_sees_a_device_in_use_and_leaves_it_alone(site):
    """A monitor in a labelled namespace gets all eight GPUs beside the pod that uses one (Case A8)."""
    site.apply(claim("owner"), pod("owner", claims=["owner"]))
    site.running("owner")
    site.cluster.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true", "--overwrite")
    try:
        everything = {
            "name": "all",
            "exactly": {"deviceClassName": "gpu.lanewise.dev", "allocationMode": "All", "adminAccess": True},
        }
        site.apply(claim("watch", everything), pod("watch", claims=["watch"]))
        site.running("watch")
        assert len(site.seen("watch").uuids) == 8
        holder = site.kept()[2]
        site.delete(pod("watch"), claim("watch"))
        assert site.kept()[2] == holder
        assert len(site.seen("owner").nodes) == 1
    finally:
        site.delete(pod("watch"), claim("watch"))
        site.cluster.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access-")


def test_the_extended_resource_name_gives_a_whole_gpu(site):
    """`nvidia.com/gpu: 1`, as written for the device plugin, and no claim in the pod."""
    site.apply(pod("classic", limits={"nvidia.com/gpu": "1"}))
    site.running("classic")
    seen = site.seen("classic")
    assert (len(seen.uuids), len(seen.nodes)) == (1, 1)
    site.delete(pod("classic"))
    until("nothing is left", lambda: site.kept() == (set(), set(), {}))


def test_the_inventory_tells_who_publishes(site):
    """`kubectl get nodeinventories` is worth reading."""
    row = site.cluster.kubectl("get", "nodeinventories", "localhost").splitlines()
    assert [word in row[0] for word in ("GPUS", "PUBLISHED", "DRIVER", "AGE")] == [True] * 4
    (instance,) = site.inventory()["status"]["instances"]
    assert instance["registered"] is True
    assert "580.105.08" in row[1]
