"""The names in and of CDI files."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.refusals import Refused
from kubeletplugin.cdi import naming
from tests.support.properties import FEW

DRIVER = "gpu.lanewise.dev"
UID = "6f0a3c1e-93d4-4f6c-9a55-0d3f6f1f2b11"
UIDS = st.uuids().map(str)
DEVICES = st.from_regex(r"gpu-[0-9a-f]{2}-[0-9a-f]{2}-[0-7]", fullmatch=True)
DRIVERS = st.sampled_from(["gpu.lanewise.dev", "nic.lanewise.dev", "a", "a-claim", "gpu.lanewise.dev-claim"])


def test_names_of_one_device_in_one_claim():
    """What an administrator sees on the node."""
    assert naming.kind(DRIVER) == "gpu.lanewise.dev/claim"
    assert naming.device_name(UID, "gpu-65-00-0") == f"{UID}-gpu-65-00-0"
    assert naming.cdi_id(DRIVER, UID, "gpu-65-00-0") == f"gpu.lanewise.dev/claim={UID}-gpu-65-00-0"
    assert naming.file_name(DRIVER, UID) == f"gpu.lanewise.dev-claim_{UID}.json"


@FEW
@given(UIDS, UIDS, DEVICES, st.none() | UIDS)
def test_device_in_two_claims_has_two_names(one: str, other: str, device: str, share: str | None):
    """Case F8: file and device names carry the claim UID."""
    names = {naming.cdi_id(DRIVER, uid, device, share) for uid in (one, other)}
    files = {naming.file_name(DRIVER, uid) for uid in (one, other)}
    assert len(names) == len(files) == len({one, other})


@FEW
@given(UIDS, DEVICES, UIDS, UIDS)
def test_two_shares_of_a_device_in_one_claim_have_two_names(uid: str, device: str, one: str, other: str):
    """Each share is a device of its own to the runtime, and apart from the whole one."""
    names = {naming.device_name(uid, device, share) for share in (one, other, None)}
    assert len(names) == len({one, other}) + 1


@FEW
@given(UIDS, DEVICES, st.none() | UIDS)
def test_device_names_fit_the_grammar_of_cdi(uid: str, device: str, share: str | None):
    """Letters and digits at both ends."""
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*[A-Za-z0-9]", naming.device_name(uid, device, share))


@FEW
@given(UIDS, DRIVERS, DRIVERS)
def test_file_name_is_read_by_its_own_driver_only(uid: str, driver: str, other: str):
    """The way back, for two drivers in one directory."""
    assert naming.uid_of(other, naming.file_name(driver, uid)) == (uid if driver == other else None)


@pytest.mark.parametrize(
    "uid",
    ["", ".", "..", "../x", "a/b", ".hidden", "-a", "a-", "a b", "a\0b", "a\n", "é", "x" * 129, "a:b", "a_"],
)
def test_unsafe_uid_names_no_file(uid: str):
    """A UID with a slash in it would lead out of the directory."""
    for name in (lambda: naming.file_name(DRIVER, uid), lambda: naming.device_name(uid, "gpu-65-00-0")):
        with pytest.raises(Refused, match=r"cannot name a CDI device"):
            name()


@FEW
@given(st.text(max_size=20))
def test_uid_is_refused_or_a_single_component(uid: str):
    """Whatever is sent."""
    try:
        name = naming.file_name(DRIVER, uid)
    except Refused:
        return
    assert "/" not in name
    assert naming.uid_of(DRIVER, name) == uid


@pytest.mark.parametrize(
    "name",
    [
        f"gpu.lanewise.dev-claim_{UID}.yaml",
        f"gpu.lanewise.dev-claim_{UID}.json.12.tmp",
        "gpu.lanewise.dev-claim_.json",
        f"nic.lanewise.dev-claim_{UID}.json",
        f"gpu.lanewise.dev_{UID}.json",
        "gpu.lanewise.dev-claim_..json",
        "nvidia.json",
    ],
)
def test_other_files_are_no_claims(name: str):
    """What is not of our making has no UID."""
    assert naming.uid_of(DRIVER, name) is None


def test_driver_that_begins_with_a_digit_is_refused():
    """A DNS subdomain may, a CDI vendor must not; found at start, not at the first pod."""
    with pytest.raises(Refused, match=r"'1gpu\.example\.com' is no CDI vendor"):
        naming.kind("1gpu.example.com")
