"""Which container runtimes read CDI files, by their own word or by their files."""

from dataclasses import replace
from pathlib import Path

import pytest

from cli.doctor import runtime
from cli.doctor.runtime import RuntimeSeen
from tests.support.cri_runtime import a_runtime, status, version
from tests.support.diagnosis import lines, trouble

CDI = Path("/var/run/cdi")
WELL = RuntimeSeen("containerd", "v2.4.2", True, ("/etc/cdi", "/var/run/cdi"), "its answer")


def test_a_runtime_that_is_well():
    """Its version, and that CDI is on."""
    assert lines(runtime.judge(WELL, CDI)) == [
        "ok runtime: containerd v2.4.2",
        "ok runtime cdi: CDI is on and reads /var/run/cdi (its answer)",
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (replace(WELL, version="1.6.20"), "failure runtime: containerd 1.6.20 cannot read CDI files"),
        (replace(WELL, version="1.7.27"), "warning runtime: containerd 1.7.27 is older than what Lanewise is made for"),
        (
            replace(WELL, name="cri-o", version="1.22.5"),
            "failure runtime: cri-o 1.22.5 cannot read CDI files",
        ),
        (replace(WELL, name="docker"), "warning runtime: docker v2.4.2 is not known to us"),
        (
            replace(WELL, version=None, silent="nobody answers"),
            "warning runtime: its version is not known: nobody answers",
        ),
        (replace(WELL, cdi_enabled=False), "failure runtime cdi: CDI is off (its answer)"),
        (replace(WELL, cdi_enabled=None), "warning runtime cdi: it is not known whether CDI is on (its answer)"),
        (
            replace(WELL, cdi_dirs=("/etc/cdi",)),
            "failure runtime cdi: CDI files are read from /etc/cdi, and not from /var/run/cdi (its answer)",
        ),
        (replace(WELL, problem="no TOML"), "warning runtime cdi: not known: no TOML"),
    ],
)
def test_each_thing_that_can_be_wrong(seen, said):
    """One finding."""
    assert trouble(runtime.judge(seen, CDI)) == [said]


def test_run_is_var_run():
    """/var/run is a link to /run."""
    assert trouble(runtime.judge(replace(WELL, cdi_dirs=("/run/cdi",)), CDI)) == []


def test_a_runtime_is_asked_on_its_socket(node):
    """What is in force wins over what its file says."""
    socket = node.registry.parent / "run/containerd/containerd.sock"
    socket.parent.mkdir(parents=True)
    config = {"enableCDI": False, "cdiSpecDirs": ["/x"]}
    with a_runtime(socket, {"Version": version("containerd", "v2.0.1"), "Status": status(config)}):
        seen = runtime.look(node.registry.parent, None, "")
    assert seen == RuntimeSeen("containerd", "v2.0.1", False, ("/x",), f"containerd's answer on {socket}")


def test_a_runtime_that_cannot_turn_cdi_off_does_not_speak_of_it(node):
    """containerd 2.4 tells its directories alone (asked, 2026-12)."""
    socket = node.registry / "run.sock"
    answers = {"Version": version("containerd", "2.4.2+unknown"), "Status": status({"cdiSpecDirs": ["/x"]})}
    with a_runtime(socket, answers):
        seen = runtime.look(node.registry, socket, "")
    assert (seen.cdi_enabled, seen.cdi_dirs) == (True, ("/x",))


def test_a_runtime_that_says_nothing_of_cdi_is_read_by_its_file(node):
    """Older ones, and CRI-O."""
    root = node.registry.parent
    socket = root / "cri.sock"
    with a_runtime(socket, {"Version": version("cri-o", "1.34.0"), "Status": status({})}):
        seen = runtime.look(root, socket, "")
    assert seen == RuntimeSeen("cri-o", "1.34.0", True, ("/etc/cdi", "/var/run/cdi"), "CRI-O's defaults")


V2 = '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\ncdi_spec_dirs = ["/v2"]\n'
V3 = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'


@pytest.mark.parametrize(
    ("said_by_node", "files", "enabled", "dirs"),
    [
        ("containerd://1.7.27", {"etc/containerd/config.toml": V2}, True, ("/v2",)),
        ("containerd://2.1.4", {"etc/containerd/config.toml": V3}, False, ("/etc/cdi", "/var/run/cdi")),
        ("containerd://2.1.4", {}, True, ("/etc/cdi", "/var/run/cdi")),
        ("containerd://2.4.0", {"etc/containerd/config.toml": V3}, True, ("/etc/cdi", "/var/run/cdi")),
        ("containerd://1.7.27", {}, False, ("/etc/cdi", "/var/run/cdi")),
        ("", {}, None, ("/etc/cdi", "/var/run/cdi")),
        (
            "containerd://2.1.4",
            {
                "etc/containerd/config.toml": 'imports = ["/etc/containerd/conf.d/*.toml"]\n',
                "etc/containerd/conf.d/a.toml": V2.replace("true", "false"),
                "etc/containerd/conf.d/b.toml": V2,
            },
            True,
            ("/v2",),
        ),
        ("containerd://2.1.4", {"var/lib/rancher/k3s/agent/etc/containerd/config.toml": V3}, False, None),
        (
            "cri-o://1.34.0",
            {
                "etc/crio/crio.conf": '[crio.runtime]\ncdi_spec_dirs = ["/a"]\n',
                "etc/crio/crio.conf.d/10.conf": '[crio.runtime]\ncdi_spec_dirs = ["/b"]\n',
                "etc/crio/crio.conf.d/20.conf": "[crio.image]\n",
            },
            True,
            ("/b",),
        ),
    ],
)
def test_configuration_files(tmp_path, said_by_node, files, enabled, dirs):
    """Of both versions, with imports, of k3s, and none at all: then the version's default counts."""
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    seen = runtime.look(tmp_path, None, said_by_node)
    assert seen.cdi_enabled is enabled
    assert dirs is None or seen.cdi_dirs == dirs
    assert seen.silent == "no socket of a known runtime is there"


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    """And CDI is then not known."""
    path = tmp_path / "etc/containerd/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("= =")
    told = trouble(runtime.judge(runtime.look(tmp_path, None, "containerd://2.1.4"), CDI))
    assert len(told) == 1
    assert told[0].startswith("warning runtime cdi: not known: its configuration cannot be read: ")


@pytest.mark.parametrize(
    "content",
    ["a = " + "[" * 5000, "a = " + "1" * 5000, 'imports = [""]', 'imports = ["/"]', "imports = 5", 'imports = ["**x"]'],
    ids=["deep", "long", "empty import", "root import", "no imports", "no pattern"],
)
def test_a_file_that_no_runtime_would_take_is_a_warning(tmp_path, content):
    """And no traceback."""
    (tmp_path / "etc/containerd").mkdir(parents=True)
    (tmp_path / "etc/containerd/config.toml").write_text(content)
    seen = runtime.look(tmp_path, None, "containerd://2.1.4")
    assert [line.split(":")[0] for line in trouble(runtime.judge(seen, CDI))] == ["warning runtime cdi"]
