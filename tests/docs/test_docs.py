"""What the documentation says is so: links, tables, commands, outputs and numbers, held against the code."""

import argparse
import ast
import io
import re
import shlex
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import yaml

from api.kube.lease import LeaseTiming
from cli.main import main as lanewise
from cli.main import parser as lanewise_parser
from controller import settings as controller_settings
from controller.decide import UNREACHABLE, WHY_DEAD
from controller.reconcile import FORGET_SECONDS
from kubeletplugin import settings as plugin_settings
from kubeletplugin.cdi.builtin import CONTROL_NODES, NO_LEGACY_INJECTION
from kubeletplugin.cdi.environment import variable
from kubeletplugin.cdi.naming import file_name
from kubeletplugin.claims.recovery import RECHECK_SECONDS
from kubeletplugin.claims.store import RELEASE_KEPT_SECONDS
from kubeletplugin.main import PROBE_FLAG
from kubeletplugin.plugin import SOCKET_CHECK_SECONDS
from kubeletplugin.report import LEASE_SECONDS, RENEW_SECONDS
from kubeletplugin.sockets.paths import socket_paths

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"))))
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
every_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)

README, OPERATIONS, USING, ARCHITECTURE, MACHINES = (
    (ROOT / name).read_text()
    for name in ("README.md", "docs/operations.md", "docs/using.md", "docs/architecture.md", "docs/machines.md")
)


def blocks(text: str, kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table that begins with this row of heads."""
    after = text[text.index(heading) :].splitlines()[2:]
    table = after[: next((n for n, line in enumerate(after) if not line.startswith("|")), len(after))]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the `lanewise` command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = lanewise(arguments)
    return code, out.getvalue(), err.getvalue()


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    found = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@every_page
def test_links_lead_somewhere(page):
    """A relative link names a file or folder of the repository, and its anchor a heading there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert there.is_relative_to(ROOT), target
        assert not anchor or anchor in headings(there), target


@every_page
def test_files_that_are_named_exist(page):
    """A path of ours in code type is there; a star stands for at least one."""
    for named in re.findall(
        r"(?<![\w/.-])((?:api|cli|controller|deploy|docs|examples|kubeletplugin|proto|tests|tools)/[\w*./-]*)",
        page.read_text(),
    ):
        wanted = named.rstrip("./")
        assert list(ROOT.glob(wanted)), named


@every_page
def test_no_page_tells_of_somebodys_machine(page):
    """Paths of a developer's machine mean nothing to a reader."""
    assert not re.findall(r"(?<![\w.])/(?:work|root|home|tmp)/", page.read_text())


@every_page
def test_yaml_blocks_parse(page):
    """What is to be copied can be read, and objects say what they are."""
    for block in blocks(page.read_text(), "yaml"):
        for document in yaml.safe_load_all(block):
            assert isinstance(document, (dict, list)), block
            if isinstance(document, dict) and "apiVersion" in document:
                assert {"kind", "metadata"} <= document.keys(), block


@every_page
def test_make_targets_exist(page):
    """Each `make X` is one of the Makefile."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)", page.read_text())) <= targets
    assert {
        line.split()[1]
        for block in blocks(page.read_text(), "sh")
        for line in block.splitlines()
        if line.startswith("make ")
    } <= targets


@every_page
def test_lanewise_commands_are_taken(page):
    """Every `lanewise …` in a block is a command line that the program understands."""
    for block in blocks(page.read_text(), "sh"):
        for line in block.splitlines():
            match = re.search(r"(?:^|-- |/)lanewise (?!&&)(.+)$", line)
            if match and not line.startswith("git "):
                try:
                    lanewise_parser().parse_args(shlex.split(match[1], comments=True))
                except (SystemExit, argparse.ArgumentError):
                    pytest.fail(f"{line} is not taken")


@every_page
def test_flags_that_are_named_exist(page):
    """A flag in code type is one of our programs', unless the command is somebody else's."""
    known = {row[0] for module in (plugin_settings, controller_settings) for row in module._FLAGS}
    known |= {PROBE_FLAG, "--help", "--machine"}
    (subcommands,) = [a for a in lanewise_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    known |= {flag for sub in subcommands.choices.values() for flag in sub._option_string_actions}
    others = re.compile(r"kubectl|docker|git |nvidia-|lanewise discover|lanewise machine|make ")
    for line in page.read_text().splitlines():
        if others.search(line):
            continue
        assert set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", line)) <= known, line


def test_every_generated_block_is_shown_once():
    """No table is made that nobody reads."""
    from tools import docs

    shown = re.findall(r"<!-- generated: ([a-z-]+) -->", "".join(page.read_text() for page in PAGES))
    assert sorted(shown) == sorted(docs.BLOCKS)


def test_a_block_that_nobody_makes_is_refused(tmp_path):
    """A typo in a page is said, with the names that there are."""
    from tools import docs

    (tmp_path / "README.md").write_text("<!-- generated: atributes -->\n<!-- end of generated -->\n")
    with pytest.raises(docs.UnknownBlock, match="no block atributes; there are attributes"):
        docs.pages(tmp_path)


def constants(*modules: str) -> set[str]:
    """Strings in these modules that look like the reason of a condition."""
    found = set()
    for module in modules:
        for node in ast.walk(ast.parse((ROOT / module).read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"([A-Z][a-z]+)+", node.value)
            ):
                found.add(node.value)
    return found


def test_reasons_of_conditions_are_those_of_the_code():
    """Every reason that the controller gives is explained, and no other."""
    tables = rows(OPERATIONS, "| reason | status | what it means | what to do |")
    registered = {row[0].strip("`") for row in rows(OPERATIONS, "| reason | status | what it means |\n")}
    assert registered == {"Registered", *(why.capitalize() for why in WHY_DEAD)}
    never_shown = {"Waiting", "NoInventory"}  # nothing is written while these hold
    for reason in never_shown:
        assert f"`{reason}`" in OPERATIONS
    given = constants(
        "controller/decide.py", "controller/conflicts.py", "controller/conditions.py", "controller/reconcile.py"
    )
    no_reasons = {"Registered", "NoSchedule", "True", "False"}
    assert {row[0].strip("`") for row in tables} == given - no_reasons - never_shown


def test_taint_is_the_one_that_is_set():
    """Key and values, for whoever writes a toleration."""
    assert f"`{UNREACHABLE}`" in OPERATIONS
    assert all(f"`{value}`" in OPERATIONS for value in WHY_DEAD)
    assert f"key: {UNREACHABLE}," in USING


def test_log_events_are_said_somewhere():
    """Whoever searches a log for what the page names finds it."""
    sources = "".join(
        path.read_text() for folder in ("api", "controller", "kubeletplugin") for path in (ROOT / folder).rglob("*.py")
    )
    names = [
        name
        for row in (
            *rows(OPERATIONS, "| event | what it tells |"),
            *rows(OPERATIONS[OPERATIONS.index("And of the controller:") :], "| event |"),
        )
        for name in re.findall(r"`([^`]+)`", row[0])
    ]
    assert len(names) > 15
    missing = [name for name in names if f'"{name}"' not in sources]
    assert not missing


@pytest.mark.parametrize(
    ("text", "phrase", "value"),
    [
        (OPERATIONS, "the Lease is stale ({:.0f} s)", LEASE_SECONDS),
        (OPERATIONS, "has not renewed its Lease for {:.0f} s", controller_settings.Settings().stale_seconds),
        (OPERATIONS, "sees it within {:.0f} s", SOCKET_CHECK_SECONDS),
        (OPERATIONS, "another replica takes over within {:.0f} s", LeaseTiming().lease_seconds),
        (ARCHITECTURE, "renewed less than {:.0f} s ago", controller_settings.Settings().stale_seconds),
        (ARCHITECTURE, "renewed every {:.0f} s", RENEW_SECONDS),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_numbers_are_those_of_the_code(text, phrase, value):
    """An interval that changes in the code changes here too."""
    assert phrase.format(value) in " ".join(text.split())


def test_numbers_in_words_are_those_of_the_code():
    """The same, where the text writes them out."""
    assert (RECHECK_SECONDS, RELEASE_KEPT_SECONDS, FORGET_SECONDS) == (600, 300, 3600)
    flat = " ".join(ARCHITECTURE.split())
    assert "two looks ten minutes apart" in flat
    assert "in the last five minutes" in flat
    assert "taken away after an hour" in flat


def test_files_on_the_node_are_named_as_the_code_names_them():
    """Sockets, CDI files, and the rooms of the plugin's directory."""
    from kubeletplugin.health import bookfile
    from kubeletplugin.health.watch import WELL_DIR

    paths = socket_paths("gpu.lanewise.dev", pod_uid="POD-UID")
    told = OPERATIONS.replace("POD_UID", "POD-UID")
    assert f"`{paths.dra}`" in told
    assert f"`{paths.registration}`" in told
    assert f"`/var/run/cdi/{file_name('gpu.lanewise.dev', 'UID')}`" in OPERATIONS
    plain = socket_paths("gpu.lanewise.dev")
    assert f"`{plain.dra.name}` and `{plain.registration.name}`" in OPERATIONS
    store = (ROOT / "kubeletplugin/claims/store.py").read_text()
    rooms = set(re.findall(r'root / "([a-z]+)"', store))
    shown = {row[0].strip("`").partition("/")[0] for row in rows(ARCHITECTURE, "| path | what |")}
    assert shown == rooms | {"machine", bookfile.NAME, WELL_DIR}


def test_what_a_container_sees_is_what_it_gets():
    """Variables and device nodes, by their names."""
    assert f"`{variable('gpu-53-00-0')}=GPU-…`" in USING
    assert f"`{NO_LEGACY_INJECTION}`" in USING
    assert all(f"`{node}`" in USING for node in CONTROL_NODES)


def test_readme_shows_the_tree_that_the_demo_draws():
    """Line for line; dots stand for lines left out."""
    from cli import tree
    from kubeletplugin.discovery.simulated import SimulatedSource

    with tempfile.TemporaryDirectory() as root:
        file = ROOT / "examples/machines/hgx-h100.yaml"
        machine = SimulatedSource(file, Path(root) / "machine", "node-a", nodes="plain").discover()
    drawn = iter([f"  {line}" for line in tree.lines(machine, "node-a (8 GPUs, 9 NICs)")])
    (block,) = [block for block in blocks(README, "text") if "node-a (8 GPUs" in block]
    shown = block.partition("1. What the node plugin found\n")[2].partition("...")[0].splitlines()
    assert len(shown) > 5
    assert shown == [next(drawn) for _ in shown]


def test_columns_of_an_inventory_are_explained():
    """Those whose names do not say it all."""
    crd = yaml.safe_load((ROOT / "deploy/crds/nodeinventories.yaml").read_text())
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    plain = {"PRODUCT", "DRIVER", "AGE"}
    for name in {column["name"].upper() for column in columns} - plain:
        assert f"`{name}`" in OPERATIONS, name


def test_machine_example_prints_what_is_shown(tmp_path, monkeypatch):
    """The file of the page gives the output of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(blocks(MACHINES, "yaml")[0])
    code, out, _ = run("discover", "--machine", "two.yaml")
    assert (code, out) == (0, blocks(MACHINES, "text")[0])


def test_machine_mistakes_are_told_as_shown(tmp_path, monkeypatch):
    """A field that is none, and a GPU that is not in the tree."""
    monkeypatch.chdir(tmp_path)
    good = blocks(MACHINES, "yaml")[0]
    bad = good.replace("{pci: 0000:53:00.0,", "{pci: 0000:53:00.0, memory: 80,")
    bad = re.sub(r"^  pci0000:60:.*\n", "", bad, flags=re.MULTILINE)
    (tmp_path / "two.yaml").write_text(bad)
    code, _, err = run("machine", "check", "two.yaml")
    assert (code, err) == (2, blocks(MACHINES, "text")[1])


def test_machine_fields_are_those_of_the_reader():
    """Every field that a file may have is explained, and no other."""
    from kubeletplugin.discovery import machinefile

    told = {
        name.partition(".")[0]
        for row in rows(MACHINES, "| field | what it is |")
        for name in re.findall(r"`([\w.]+)`", row[0])
    }
    assert told == set(machinefile._TOP)
    device = rows(MACHINES, "| field of a device |")
    by_kind = {
        kind: {name for row in device if kind in row[1] or row[1] == "all" for name in re.findall(r"`(\w+)`", row[0])}
        for kind in ("GPUs", "NICs", "others")
    }
    assert by_kind == {"GPUs": set(machinefile._GPU), "NICs": set(machinefile._NIC), "others": set(machinefile._OTHER)}


def test_every_example_is_listed():
    """A folder that nobody is told of helps nobody."""
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    listed = set(re.findall(r"\]\(([a-z0-9-]+)\)", (ROOT / "examples/README.md").read_text()))
    assert listed == folders
