"""Questions for the allocator and for upstream's, made at random: small clusters that are crowded and contradictory."""

import random
from typing import Any

Json = dict[str, Any]

DRIVERS = ("gpu.example.com", "nic.example.com")
NODES = ("node-a", "node-b")
EFFECTS = ("NoSchedule", "NoExecute", "None")
EXPRESSIONS = (
    'device.driver == "gpu.example.com"',
    'device.driver == "nic.example.com"',
    'device.attributes["gpu.example.com"].numa == 0',
    'has(device.attributes["gpu.example.com"].numa) && device.attributes["gpu.example.com"].numa <= 1',
    'device.attributes["gpu.example.com"].?model.orValue("") == "h100"',
    'device.attributes["gpu.example.com"].?model.orValue("x") in ["a100", "h100"]',
    'device.attributes["example.org"].?numa.orValue(0) == 0',
    '"example.org" in device.attributes',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    'device.driver != "gpu.example.com" || device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))',
    'device.driver == "gpu.example.com" ? device.attributes["gpu.example.com"].healthy : true',
    'cel.bind(a, device.attributes["gpu.example.com"], has(a.version) && a.version.isGreaterThan(semver("1.5.0")))',
    "!device.allowMultipleAllocations",
    "true",
    "false",
)
ATTRIBUTES = (
    "gpu.example.com/numa",
    "example.org/numa",
    "gpu.example.com/model",
    "nic.example.com/model",
    "example.org/root",
)


class Maker:
    """Makes one question after the other from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def question(self) -> Json:
        """As tests/upstream/allocator reads it."""
        slices = [item for number in range(self._number(1, 4)) for item in self._pool(number)]
        self._random.shuffle(slices)
        devices = [
            {"driver": item["spec"]["driver"], "pool": item["spec"]["pool"]["name"], "device": device["name"]}
            for item in slices
            for device in item["spec"]["devices"]
        ]
        held = self._random.choice((0, 0, 0.2, 0.5))
        return {
            "node": {"metadata": {"name": "node-a", "labels": {"zone": self._random.choice(("east", "west"))}}},
            "slices": slices,
            "classes": [self._class(name) for name in ("any", "gpu", "nic")],
            "claims": [self._claim(f"claim-{i}") for i in range(self._random.choice((1, 1, 1, 2, 3)))],
            "held": [device for device in devices if self._random.random() < held],
        }

    def _number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pool(self, number: int) -> list[Json]:
        driver = self._random.choice(DRIVERS)
        pool, count = f"pool-{self._number(0, 3)}", self._number(1, 3)
        generation, per_device = self._number(1, 2), self._chance(0.2)
        letters = self._random.sample("abcdefgh", count)
        found = []
        for i, letter in enumerate(letters):
            devices = [self._device(f"dev-{number}-{i}-{j}", driver, per_device) for j in range(self._number(0, 5))]
            if self._chance(0.03) and devices:
                devices.append({**devices[0]})
            stated = count if self._chance(0.95) else count + 1
            meta = {"name": driver, "generation": generation if self._chance(0.97) else generation + 1}
            spec = {
                "driver": driver,
                "pool": {**meta, "name": pool, "resourceSliceCount": stated},
                "devices": devices,
                **({"perDeviceNodeSelection": True} if per_device else self._place()),
            }
            found.append({"metadata": {"name": f"slice-{letter}-{number}"}, "spec": spec})
        return found

    def _place(self) -> Json:
        return self._random.choice(
            (
                {"nodeName": "node-a"},
                {"nodeName": "node-a"},
                {"nodeName": "node-a"},
                {"nodeName": "node-b"},
                {"allNodes": True},
                {"nodeSelector": self._selector()},
            )
        )

    def _selector(self) -> Json:
        requirement = self._random.choice(
            (
                {"key": "zone", "operator": "In", "values": ["east"]},
                {"key": "zone", "operator": "NotIn", "values": ["east"]},
                {"key": "zone", "operator": "Exists"},
                {"key": "rack", "operator": "DoesNotExist"},
                {"key": "rack", "operator": "Gt", "values": ["3"]},
            )
        )
        field = {"key": "metadata.name", "operator": self._random.choice(("In", "NotIn")), "values": ["node-a"]}
        term: Json = {"matchExpressions": [requirement]} if self._chance(0.7) else {}
        if not term or self._chance(0.3):
            term["matchFields"] = [field]
        return {"nodeSelectorTerms": [term]}

    def _device(self, name: str, driver: str, per_device: bool) -> Json:
        prefix = f"{driver}/" if self._chance(0.3) else ""
        attributes: Json = {f"{prefix}numa": {"int": self._number(0, 2)}, "healthy": {"bool": self._chance(0.8)}}
        if self._chance(0.7):
            attributes[f"{driver}/model" if self._chance(0.5) else "model"] = {
                "string": self._random.choice(("h100", "a100"))
            }
        if self._chance(0.5):
            attributes["version"] = {"version": self._random.choice(("1.2.3", "1.10.0", "2.0.0-rc.1"))}
        if self._chance(0.6):
            attributes["example.org/numa"] = self._random.choice(
                ({"int": 0}, {"int": 1}, {"string": "0"}, {"bool": True}, {"version": "1.0.0"})
            )
        if self._chance(0.6):
            attributes["example.org/root"] = {"string": self._random.choice(("r0", "r1", "r2"))}
        device: Json = {
            "name": name,
            "attributes": attributes,
            "capacity": {"memory": {"value": self._random.choice(("20Gi", "40Gi", "80Gi"))}},
        }
        if self._chance(0.2):
            taints = [self._taint() for _ in range(self._number(1, 2))]
            device["taints"] = taints
        if self._chance(0.05):
            device["bindsToNode"] = True
        if per_device:
            device |= self._place()
        return device

    def _taint(self) -> Json:
        taint = {
            "key": self._random.choice(("lanewise.dev/unreachable", "lanewise.dev/ecc")),
            "value": self._random.choice(("", "v1")),
            "effect": self._random.choice(EFFECTS),
        }
        return _without_empty(taint)

    def _toleration(self) -> Json:
        toleration: Json = {
            "key": self._random.choice(("", "lanewise.dev/unreachable", "lanewise.dev/ecc")),
            "operator": self._random.choice(("Exists", "Equal", "")),
            "effect": self._random.choice(("", "NoSchedule", "NoExecute")),
        }
        return _without_empty(toleration | ({"value": "v1"} if self._chance(0.3) else {}))

    def _class(self, name: str) -> Json:
        first = {"any": (), "gpu": EXPRESSIONS[:1], "nic": EXPRESSIONS[1:2]}[name]
        more = (self._random.choice(EXPRESSIONS),) if self._chance(0.1) else ()
        spec: Json = {"selectors": [{"cel": {"expression": e}} for e in (*first, *more)]}
        if self._chance(0.3):
            spec["config"] = [self._config(f"{name}-{i}") for i in range(self._number(1, 2))]
        return {"metadata": {"name": name}, "spec": spec}

    def _config(self, text: str) -> Json:
        return {"opaque": {"driver": self._random.choice(DRIVERS), "parameters": {"text": text}}}

    def _claim(self, name: str) -> Json:
        requests = [self._request(f"r{i}") for i in range(self._random.choice((1, 1, 2, 3)))]
        names = [request["name"] for request in requests]
        names += [f"{r['name']}/{sub['name']}" for r in requests for sub in r.get("firstAvailable", ())]
        devices: Json = {"requests": requests}
        if self._chance(0.4):
            devices["constraints"] = [self._constraint(names) for _ in range(self._number(1, 2))]
        if self._chance(0.3):
            devices["config"] = [self._config(f"{name}-{i}") | self._some(names) for i in range(self._number(1, 2))]
        return {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"devices": devices}}

    def _some(self, names: list[str]) -> Json:
        return {"requests": self._random.sample(names, self._number(1, len(names)))} if self._chance(0.6) else {}

    def _constraint(self, names: list[str]) -> Json:
        kind = "matchAttribute" if self._chance(0.7) else "distinctAttribute"
        return {kind: self._random.choice(ATTRIBUTES), **self._some(names)}

    def _request(self, name: str) -> Json:
        if self._chance(0.25):
            subs = [{"name": f"s{i}", **self._wish(sub=True)} for i in range(self._number(1, 3))]
            return {"name": name, "firstAvailable": subs}
        return {"name": name, "exactly": self._wish(sub=False)}

    def _wish(self, *, sub: bool) -> Json:
        wish: Json = {"deviceClassName": self._random.choice(("any", "gpu", "gpu", "nic"))}
        if self._chance(0.01):
            wish["deviceClassName"] = "absent"
        if self._chance(0.35):
            count = self._number(1, 2)
            wish["selectors"] = [{"cel": {"expression": self._random.choice(EXPRESSIONS)}} for _ in range(count)]
        if self._chance(0.15):
            wish["allocationMode"] = "All"
        else:
            wish |= {"allocationMode": "ExactCount", "count": self._random.choice((1, 1, 1, 1, 1, 1, 2, 2, 3, 20))}
        if self._chance(0.3):
            wish["tolerations"] = [self._toleration() for _ in range(self._number(1, 2))]
        if not sub and self._chance(0.1):
            wish["adminAccess"] = self._chance(0.8)
        return wish


def _without_empty(fields: Json) -> Json:
    """As the API server stores it: an empty string is not written."""
    return {key: value for key, value in fields.items() if value != ""}
