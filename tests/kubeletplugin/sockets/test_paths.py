"""Names of sockets: upstream's, within 107 bytes, and never taken for another driver's."""

import base64
import hashlib
from pathlib import Path

import pytest

from api.names import DRIVER_NAME_MAX
from api.refusals import BadInput, Refused, Several
from kubeletplugin.sockets.paths import (
    PLUGINS_DIR,
    REGISTRY_DIR,
    SOCKET_PATH_BYTES,
    ours_in_plugin_dir,
    ours_in_registry,
    registration_names,
    socket_paths,
    temporary_prefix,
)

DRIVER = "gpu.lanewise.dev"
UID = "12345678-1234-1234-1234-123456789abc"


def test_fixed_names_are_upstreams():
    """One instance a node: names without a UID, in the kubelet's usual directories."""
    paths = socket_paths(DRIVER)
    assert paths.registration == Path("/var/lib/kubelet/plugins_registry/gpu.lanewise.dev-reg.sock")
    assert paths.dra == Path("/var/lib/kubelet/plugins/gpu.lanewise.dev/dra.sock")


def test_rolling_update_names_carry_the_pod_uid():
    """Two instances side by side need sockets of their own (Case H4)."""
    paths = socket_paths(DRIVER, pod_uid=UID)
    assert paths.registration == REGISTRY_DIR / f"gpu.lanewise.dev-{UID}-reg.sock"
    assert paths.dra == PLUGINS_DIR / DRIVER / f"dra-{UID}.sock"


def test_longest_driver_name_fits_with_a_uid():
    """DRIVER_NAME_MAX is what the usual directories leave room for."""
    driver = "d" * (DRIVER_NAME_MAX - 4) + ".dev"
    paths = socket_paths(driver, pod_uid=UID)
    assert paths.registration.name == f"{driver}-{UID}-reg.sock"
    assert len(str(paths.registration)) == SOCKET_PATH_BYTES


def test_hashed_names_are_upstreams():
    """What upstream's helper falls back to, so that its tools recognise ours."""
    short = base64.urlsafe_b64encode(hashlib.sha256(UID.encode()).digest()[:8]).decode().rstrip("=")
    shortest = base64.urlsafe_b64encode(hashlib.sha256(f"{DRIVER}\0{UID}".encode()).digest()[:16]).decode().rstrip("=")
    assert registration_names(DRIVER, UID) == (
        f"{DRIVER}-{UID}-reg.sock",
        f"{DRIVER}-{short}-reg.sock",
        f"dra-{shortest}-reg.sock",
    )
    assert (len(short), len(shortest)) == (11, 22)


@pytest.mark.parametrize(("length", "form"), [(44, 0), (45, 1), (69, 1), (70, 2), (71, 2)])
def test_registry_too_long_for_the_uid_takes_a_hashed_name(length, form):
    """Case H6: the directory is given, the name is ours to shorten."""
    registry = Path("/" + "r" * (length - 1))
    paths = socket_paths(DRIVER, registry, Path("/p"), pod_uid=UID)
    assert paths.registration.name == registration_names(DRIVER, UID)[form]
    assert len(str(paths.registration)) <= SOCKET_PATH_BYTES


def test_path_of_108_bytes_is_refused_with_the_flag_to_shorten():
    """Case H6: gRPC would say no more than "failed to bind"."""
    good = Path("/" + "p" * (SOCKET_PATH_BYTES - len(f"/dra-{UID}.sock") - 1))
    assert len(str(socket_paths(DRIVER, Path("/r"), good, pod_uid=UID).dra)) == SOCKET_PATH_BYTES
    with pytest.raises(Refused) as caught:
        socket_paths(DRIVER, Path("/r"), Path(f"{good}p"), pod_uid=UID)
    assert str(caught.value) == (
        f"--plugin-dir: {good}p/dra-{UID}.sock is 1 bytes longer than the 107 that a socket path can have"
        " (use a directory whose path is shorter by 1 bytes or more)"
    )


def test_both_directories_too_long_are_told_at_once():
    """Case H6: mended in one go."""
    long = Path("/" + "x" * 105)
    with pytest.raises(Refused) as caught:
        socket_paths(DRIVER, long, long)
    assert isinstance(caught.value.reason, Several)
    assert [reason.source for reason in caught.value.reason.reasons] == ["--registry-dir", "--plugin-dir"]


def test_bytes_are_counted_not_characters():
    """Case H6: 40 characters of three bytes each are 120 bytes."""
    with pytest.raises(Refused):
        socket_paths(DRIVER, Path("/" + "€" * 40), Path("/p"))


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        ({"registry_dir": Path("reg")}, "--registry-dir"),
        ({"plugin_dir": Path("plug")}, "--plugin-dir"),
        ({"pod_uid": "../x"}, "--pod-uid"),
        ({"pod_uid": ""}, "--pod-uid"),
    ],
)
def test_unusable_settings_are_refused(arguments, source):
    """The kubelet takes the path as it is, so it has to be absolute; the UID becomes part of a file name."""
    with pytest.raises(Refused) as caught:
        socket_paths(DRIVER, **arguments)
    assert isinstance(caught.value.reason, BadInput)
    assert caught.value.reason.source == source


def test_other_drivers_sockets_are_not_ours():
    """A driver whose name begins with ours, and hashes of unknown origin, are left alone."""
    known = registration_names(DRIVER, UID)
    other = "87654321-1234-1234-1234-123456789abc"
    ours = [f"{DRIVER}-reg.sock", f"{DRIVER}-{other}-reg.sock", *known, f"{temporary_prefix(DRIVER)}0a1b2c"]
    foreign = [
        f"{DRIVER}-special-reg.sock",
        *registration_names(DRIVER, other)[1:],
        *registration_names("nic.example.com", UID),
        "csi.example.com-reg.sock",
        f"{temporary_prefix('nic.example.com')}0a1b2c",
        f"{DRIVER}-{UID}-reg.sock.bak",
    ]
    assert ours_in_registry(DRIVER, [*ours, *foreign], [f"dra-{UID}.sock"]) == tuple(ours)


def test_records_in_our_directory_are_no_sockets_of_ours():
    """Claims are kept beside the sockets."""
    names = ["dra.sock", f"dra-{UID}.sock", f"{temporary_prefix(DRIVER)}0a1b2c", "claims", "lock", "dra-x.json"]
    assert ours_in_plugin_dir(DRIVER, names) == tuple(names[:3])


def test_kubelet_overlooks_temporary_names():
    """It ignores names with a leading dot."""
    assert temporary_prefix(DRIVER).startswith(".")
