"""What nearly right CDI documents are made of: right ones, and values worth putting into them."""

from typing import Any

FULL: dict[str, Any] = {
    "cdiVersion": "1.1.0",
    "kind": "gpu.lanewise.dev/claim",
    "annotations": {"lanewise.dev/a": "b"},
    "devices": [
        {
            "name": "uid-gpu-65-00-0",
            "annotations": {"c": "d"},
            "containerEdits": {
                "env": ["A=1", "B="],
                "deviceNodes": [
                    {"path": "/dev/nvidia0", "hostPath": "/run/dev/nvidia0", "type": "c", "major": 195, "minor": 0,
                     "fileMode": 0o666, "permissions": "rw", "uid": 0, "gid": 44},
                    {"path": "/dev/nvidia1"},
                ],
                "mounts": [
                    {"hostPath": "/a", "containerPath": "/b", "options": ["ro", "rbind"], "type": "bind"},
                    {"hostPath": "tmpfs", "containerPath": "/c", "type": "tmpfs"},
                ],
                "hooks": [
                    {"hookName": "createContainer", "path": "/hook", "args": ["hook", "x"], "env": ["D=1"], "timeout": 5},
                ],
                "additionalGids": [44],
                "netDevices": [{"hostInterfaceName": "a", "name": "b"}, {"hostInterfaceName": "c", "name": "d"}],
                "intelRdt": {"closID": "x", "l3CacheSchema": "s", "memBwSchema": "m", "schemata": ["a"],
                             "enableMonitoring": True},
            },
        },
        {"name": "0", "containerEdits": {"env": ["A=1"]}},
    ],
    "containerEdits": {"env": ["B=2"]},
}  # fmt: skip
"""All that the newest version knows."""

PLAIN: dict[str, Any] = {
    "cdiVersion": "0.3.0",
    "kind": "v/c",
    "devices": [
        {
            "name": "x",
            "containerEdits": {
                "env": ["A=1"],
                "mounts": [{"hostPath": "/a", "containerPath": "/b"}],
                "deviceNodes": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}],
            },
        }
    ],
}
"""What the oldest version knows."""

_TEXTS = (
    "", "none", "x", "A=1", "=A", "A=\0", "A=\x7f", "A=\x85", "A=\x9f", "A=\ufeff", "A=\ufffe", "A=\U0001f600", "A=\u2028",
    "A=\udcff", "A=\n\t\"\\/", "/", "/x", "x/y", "..", "/x\x7f", "true", "null", "~", "1", "0x10", "2001-01-01", "é",
)  # fmt: skip
_NUMBERS = (0, 1, -1, 0o7777, 0o10000, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64, 1.0, 1.5, "1", True, None)

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64, 1.0, 1.5,
    [], {}, [None], [""], ["A=1"], [1], {"a": "b"}, {"-": "x"}, {"a": 1}, *_TEXTS,
)  # fmt: skip
"""Anything at all, the pitfalls of YAML among it."""


def anything(key: Any, _value: Any) -> tuple[Any, ...]:
    """What belongs to a field of this name, and anything, as often one as the other."""
    near = FIELDS.get(key, ())
    return near * (len(VALUES) // len(near)) + VALUES if near else VALUES


_NET = {"hostInterfaceName": "a", "name": "b"}
FIELDS: dict[str, tuple[Any, ...]] = {
    "cdiVersion": (
        "0.1.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0", "v1.1.0", "1.2.0", "1.1", 1.1,
    ),
    "kind": ("a/b", "a/b.c", "1a/b", "a/1b", "a-/b", "a/b-", "a/", "/b", "a", "a//b", "a/b/c", "é/b", "a/é", "A_.-9/b"),
    "name": ("a", "0", "-", "a-", "a:b", "a:", "a.b", "a b", "é", "a" * 300, "a\x7fb"),
    "annotations": (
        {}, {"a": "b"}, {"-": "b"}, {"a.b/c": "d"}, {"A.B/C": "d"}, {"/c": "d"}, {"a/b/c": "d"}, {"a": None}, {"a": 1},
        {"a" * 64: "b"}, {"a": "b" * (256 << 10)},
    ),
    "containerEdits": (
        {}, {"env": []}, {"env": None}, {"env": ["A=1"]}, {"additionalGids": [0]}, {"intelRdt": {}}, {"intelRdt": None},
        {"netDevices": []}, {"hooks": [], "mounts": []},
    ),
    "devices": ([], None, [{}], [None], [{"name": "a"}], [{"name": "a", "containerEdits": {"env": ["A=1"]}}]),
    "env": ([], ["A"], ["=A"], ["A="], [""], [None], [1], ["A=1", "A=2"]),
    "deviceNodes": ([], [None], [{}], [{"path": ""}], [{"path": "x"}], [{"path": "/x"}]),
    "path": ("", "x", "/x", "/", "//", "/x\0"),
    "hostPath": ("", "x", "/x", "/"),
    "containerPath": ("", "x", "/x", "/"),
    "type": ("", "b", "c", "u", "p", "d", "bind", "tmpfs", None),
    **dict.fromkeys(("major", "minor", "uid", "gid", "fileMode", "timeout"), _NUMBERS),
    "permissions": ("", "r", "rwm", "none", "rr", "x", "rnone", None),
    "mounts": ([], [None], [{}], [{"hostPath": "/a", "containerPath": "/b"}], [{"hostPath": "/a"}]),
    "options": ([], [""], ["ro"], [None], None),
    "hooks": ([], [None], [{}], [{"hookName": "prestart", "path": "/x"}], [{"hookName": "prestart"}]),
    "hookName": ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop", "", "prestop"),
    "args": ([], [""], [None], [1], None),
    "additionalGids": ([], [0], [-1], [2**32], [2**32 - 1], [None], ["1"]),
    "netDevices": (
        [], [None], [{}], [_NET], [_NET | {"name": ""}],
        [_NET, _NET | {"name": "c"}], [_NET, _NET | {"hostInterfaceName": "c"}],
    ),
    "intelRdt": (
        {}, None, {"closID": ""}, {"closID": "/"}, {"closID": "a/b"}, {"closID": ".."}, {"closID": "a\nb"},
        {"closID": "x" * 4096}, {"enableCMT": True}, {"enableMBM": False}, {"schemata": []},
        {"enableMonitoring": False}, {"enableMonitoring": "yes"},
    ),
    "unknown": (None, 1),
}  # fmt: skip
"""By name of a field, what is near the limits of what it may hold."""
