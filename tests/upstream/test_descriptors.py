"""Our compiled .proto files say what those of k8s.io/kubelet say."""

import subprocess

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from proto.dra.v1 import dra_pb2 as dra_v1
from proto.dra.v1beta1 import dra_pb2 as dra_v1beta1
from proto.health.v1 import health_pb2 as health_v1
from proto.health.v1alpha1 import health_pb2 as health_v1alpha1
from proto.registration import registration_pb2

OURS = (dra_v1, dra_v1beta1, health_v1, health_v1alpha1, registration_pb2)


@pytest.fixture(scope="module")
def theirs(built):
    """What upstream compiled, by package. No file imports another, so each has a pool of its own."""
    told = subprocess.run([built("descriptors")], stdout=subprocess.PIPE, check=True).stdout
    files = descriptor_pb2.FileDescriptorSet.FromString(told).file
    return {file.package: in_a_pool(file) for file in files}


def in_a_pool(file):
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindFileByName(file.name)


def contract(file):
    """Everything in a file that is seen on the wire or in JSON, as lines that can be compared and read."""
    lines = {f"package {file.package}"}
    for message in file.message_types_by_name.values():
        lines |= set(of_message(message))
    for enum in file.enum_types_by_name.values():
        lines |= {f"enum {enum.full_name} {value.number} {value.name}" for value in enum.values}
    for service in file.services_by_name.values():
        lines.add(f"service {service.full_name}")
        for method in service.methods:
            request = f"{'stream ' * method.client_streaming}{method.input_type.full_name}"
            response = f"{'stream ' * method.server_streaming}{method.output_type.full_name}"
            lines.add(f"method {method.full_name} {request} -> {response}")
    return lines


def of_message(message):
    yield f"message {message.full_name} {'map entry' if message.GetOptions().map_entry else ''}"
    for field in message.fields:
        inner = field.message_type or field.enum_type
        label = "repeated" if field.is_repeated else "required" if field.is_required else "one"
        yield (
            f"field {message.full_name} {field.number} {field.name} json {field.json_name} type {field.type} "
            f"{inner.full_name if inner else '-'} {label} presence {field.has_presence} packed {field.is_packed} "
            f"oneof {field.containing_oneof.name if field.containing_oneof else '-'}"
        )
    for nested in message.nested_types:
        yield from of_message(nested)
    for enum in message.enum_types:
        yield from (f"enum {enum.full_name} {value.number} {value.name}" for value in enum.values)


def test_same_packages(theirs):
    """Each file of upstream's that a DRA plugin meets has its counterpart here, under the same package."""
    assert {module.DESCRIPTOR.package for module in OURS} == set(theirs)


@pytest.mark.parametrize("ours", OURS, ids=lambda module: module.DESCRIPTOR.package)
def test_contract_is_upstreams(ours, theirs):
    """Numbers, types, labels, presence, JSON names, services, methods and streaming are the same, one by one."""
    assert contract(ours.DESCRIPTOR) == contract(theirs[ours.DESCRIPTOR.package])


def info(file):
    return next(message for message in file.message_type if message.name == "PluginInfo").field


def make_optional(file):
    """As protoc does it: `optional` in proto3 is a oneof of one."""
    message = next(message for message in file.message_type if message.name == "PluginInfo")
    message.oneof_decl.add(name="_type")
    message.field[0].proto3_optional, message.field[0].oneof_index = True, 0


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda file: setattr(info(file)[0], "number", 17), id="number"),
        pytest.param(lambda file: setattr(info(file)[0], "type", 12), id="type"),
        pytest.param(lambda file: setattr(info(file)[0], "name", "kind"), id="name"),
        pytest.param(make_optional, id="presence"),
        pytest.param(lambda file: setattr(info(file)[3], "label", 1), id="label"),
        pytest.param(lambda file: setattr(info(file)[3], "json_name", "versions"), id="JSON name"),
        pytest.param(lambda file: info(file).pop(), id="a field less"),
        pytest.param(lambda file: file.message_type.add(name="More"), id="a message more"),
        pytest.param(lambda file: setattr(file.service[0].method[0], "name", "Get"), id="method"),
        pytest.param(lambda file: setattr(file.service[0].method[0], "server_streaming", True), id="streaming"),
        pytest.param(lambda file: file.service[0].method.pop(), id="a method less"),
        pytest.param(
            lambda file: file.ParseFromString(file.SerializeToString().replace(b"registration", b"registratiom")),
            id="package",
        ),
    ],
)
def test_comparison_sees(spoil, theirs):
    """A difference of each kind shows: the comparison above could fail."""
    genuine = theirs["pluginregistration"]
    file = descriptor_pb2.FileDescriptorProto()
    genuine.CopyToProto(file)
    spoil(file)
    assert contract(in_a_pool(file)) != contract(genuine)
