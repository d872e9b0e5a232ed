"""The table of what ails a GPU: each code once, each fit for a taint, and no program's fault among them."""

import pytest

from api.health import (
    KINDS,
    LOST,
    MEANINGS,
    RECOVERY_ACTIONS,
    XID,
    XID_UNKNOWN,
    XIDS,
    Ailment,
    is_linked,
    is_serious,
    known,
    of_xid,
    weight,
)
from api.names import API_GROUP, is_dns_label
from controller.validate import is_label_name, is_label_value

NOW = "2026-12-01T10:00:00Z"


def test_what_a_program_can_bring_about_is_no_ailment():
    """Case J1 (dra-driver-nvidia-gpu #689): 13, 31, 43, 45 and 68 say nothing about the device, 79 says that it is gone."""
    assert [of_xid(number, NOW) for number in (13, 31, 43, 45, 68)] == [None] * 5
    ailment = of_xid(79, NOW)
    assert ailment is not None
    assert (ailment.kind, ailment.code, ailment.since) == (LOST, "off-the-bus", NOW)


@pytest.mark.parametrize("number", [46, 48, 62, 64, 74, 95, 119, 120, 140])
def test_device_trouble_is_an_ailment_with_its_number(number):
    """By the Xid catalogue these ask for a reset or more."""
    ailment = of_xid(number, NOW)
    assert ailment is not None
    assert (ailment.kind, ailment.code) == (XID, str(number))
    assert ailment.message.startswith(f"Xid {number}: ")
    assert is_serious(ailment)


def test_an_xid_that_nobody_knows_is_told_and_keeps_nobody_away():
    """It is neither swallowed nor taken for the worst."""
    ailment = of_xid(4711, NOW)
    assert ailment is not None
    assert (ailment.kind, ailment.code, is_serious(ailment)) == (XID_UNKNOWN, "4711", False)


def test_each_code_is_there_once():
    """One table: two rows for one code could say two things."""
    numbers = [number for xids in XIDS for number in xids.numbers]
    assert sorted(numbers) == sorted(set(numbers))
    codes = [(meaning.kind, meaning.code) for meaning in MEANINGS]
    assert len(codes) == len(set(codes))
    assert {xids.kind for xids in XIDS} <= {None, *KINDS}
    assert {meaning.kind for meaning in MEANINGS} <= set(KINDS)


def test_kinds_and_codes_fit_taints():
    """Key and value of a device taint, and fields of the NodeInventory."""
    assert all(is_dns_label(kind) and is_label_name(f"{API_GROUP}/{kind}") for kind in KINDS)
    assert all(is_label_value(meaning.code) for meaning in MEANINGS)
    assert "unreachable" not in KINDS, "that is the taint of a silent plugin"


def test_every_recovery_action_has_a_meaning():
    """nvml.h of CUDA 13 has seven beside none."""
    assert sorted(RECOVERY_ACTIONS) == list(range(1, 8))
    for code in RECOVERY_ACTIONS.values():
        assert known("reset-needed", code, NOW).message


def test_a_kind_of_a_later_version_is_taken_seriously():
    """The controller may be older than a node's plugin."""
    ailment = Ailment("melting", "now", NOW, "it melts", "run")
    assert is_serious(ailment)
    assert not is_linked(ailment)
    assert min([ailment, known(LOST, "off-the-bus", NOW)], key=weight).kind == LOST
