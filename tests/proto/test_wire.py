"""The contracts as Kubernetes 1.37.2 defines them, beside what our modules say."""

import pytest

from proto.dra.v1 import dra_pb2 as dra_v1
from proto.dra.v1beta1 import dra_pb2 as dra_v1beta1
from proto.health.v1 import health_pb2 as health_v1
from proto.health.v1alpha1 import health_pb2 as health_v1alpha1
from proto.registration import registration_pb2

CLAIMS = {
    "NodePrepareResourcesRequest": "1 claims Claim*",
    "NodePrepareResourcesResponse": "1 claims map<string,NodePrepareResourceResponse>",
    "NodePrepareResourceResponse": "1 devices Device*, 2 error string",
    "NodeUnprepareResourcesRequest": "1 claims Claim*",
    "NodeUnprepareResourcesResponse": "1 claims map<string,NodeUnprepareResourceResponse>",
    "NodeUnprepareResourceResponse": "1 error string",
    "Claim": "1 namespace string, 2 uid string, 3 name string",
}
DEVICE = "1 request_names string*, 2 pool_name string, 3 device_name string, 4 cdi_device_ids string*"
HEALTH = {
    "NodeWatchResourcesRequest": "",
    "NodeWatchResourcesResponse": "1 devices DeviceHealth*",
    "DeviceHealth": "1 device DeviceIdentifier, 2 health HealthStatus, 3 last_updated_time int64, "
    "4 health_check_timeout_seconds int64, 5 message string",
    "DeviceIdentifier": "1 pool_name string, 2 device_name string",
}
REGISTRATION = {
    "InfoRequest": "",
    "PluginInfo": "1 type string, 2 name string, 3 endpoint string, 4 supported_versions string*",
    "RegistrationStatus": "1 plugin_registered bool, 2 error string",
    "RegistrationStatusResponse": "",
}
DRA_METHODS = [
    "NodePrepareResources NodePrepareResourcesRequest NodePrepareResourcesResponse",
    "NodeUnprepareResources NodeUnprepareResourcesRequest NodeUnprepareResourcesResponse",
]
HEALTH_METHODS = ["NodeWatchResources NodeWatchResourcesRequest stream NodeWatchResourcesResponse"]
REGISTRATION_METHODS = [
    "GetInfo InfoRequest PluginInfo",
    "NotifyRegistrationStatus RegistrationStatus RegistrationStatusResponse",
]

CONTRACTS = [
    (
        dra_v1,
        "k8s.io.kubelet.pkg.apis.dra.v1",
        "DRAPlugin",
        {**CLAIMS, "Device": f"{DEVICE}, 5 share_id string?"},
        DRA_METHODS,
    ),
    (dra_v1beta1, "k8s.io.kubelet.pkg.apis.dra.v1beta1", "DRAPlugin", {**CLAIMS, "Device": DEVICE}, DRA_METHODS),
    (registration_pb2, "pluginregistration", "Registration", REGISTRATION, REGISTRATION_METHODS),
    (health_v1, "v1", "DRAResourceHealth", HEALTH, HEALTH_METHODS),
    (health_v1alpha1, "v1alpha1", "DRAResourceHealth", HEALTH, HEALTH_METHODS),
]


def field_text(field):
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        return f"{field.number} {field.name} map<{kind(key)},{kind(value)}>"
    mark = "*" if field.is_repeated else "?" if field.containing_oneof is not None else ""
    return f"{field.number} {field.name} {kind(field)}{mark}"


def kind(field):
    named = field.message_type or field.enum_type
    if named is not None:
        return named.name
    return {field.TYPE_STRING: "string", field.TYPE_BOOL: "bool", field.TYPE_INT64: "int64"}[field.type]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract[1])
def test_messages_and_methods_are_the_kubelets(contract):
    """Package, field numbers, types, map fields, the optional share ID and the methods are the wire contract."""
    module, package, service, messages, methods = contract
    described = module.DESCRIPTOR
    assert described.package == package
    assert {
        name: ", ".join(field_text(field) for field in sorted(message.fields, key=lambda field: field.number))
        for name, message in described.message_types_by_name.items()
    } == messages
    assert list(described.services_by_name) == [service]
    assert [
        f"{method.name} {method.input_type.name} {'stream ' if method.server_streaming else ''}{method.output_type.name}"
        for method in described.services_by_name[service].methods
    ] == methods


@pytest.mark.parametrize("module", [health_v1, health_v1alpha1])
def test_health_values_are_the_kubelets(module):
    """UNKNOWN is 0, so that a report without health says nothing."""
    assert dict(module.HealthStatus.items()) == {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}


def test_reply_of_v1_has_the_bytes_of_the_contract():
    """One reply written out byte by byte, so that not only our own modules agree with each other."""
    reply = dra_v1.NodePrepareResourcesResponse(
        claims={"u": dra_v1.NodePrepareResourceResponse(devices=[dra_v1.Device(request_names=["r"], share_id="s")])}
    )
    device = b"\x0a\x01r" + b"\x2a\x01s"
    entry = b"\x0a\x01u" + b"\x12" + bytes([len(device) + 2]) + b"\x0a" + bytes([len(device)]) + device
    assert reply.SerializeToString() == b"\x0a" + bytes([len(entry)]) + entry


def test_no_share_differs_from_an_empty_share():
    """share_id has presence: a device that nobody shares carries none."""
    assert not dra_v1.Device(share_id=None).HasField("share_id")
    assert dra_v1.Device(share_id="").HasField("share_id")
