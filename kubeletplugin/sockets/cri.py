"""What the container runtime says of itself on its own socket, asked the way the kubelet asks.

Two calls of the CRI and three fields of their answers, so they are taken apart here instead of compiling its 2000 lines of
protobuf (k8s.io/cri-api, pkg/apis/runtime/v1/api.proto: Version, Status).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from kubeletplugin.sockets.probe import connect

_SERVICE = "runtime.v1.RuntimeService"
_VERBOSE = b"\x08\x01"
"""StatusRequest{verbose: true}."""
_VARINT, _I64, _BYTES, _I32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Runtime:
    """A container runtime that answers."""

    name: str
    """`containerd` or `cri-o`."""
    version: str
    config: dict[str, Any]
    """containerd's CRI configuration as it is in force; of others nothing."""


def ask(socket: Path, timeout_seconds: float) -> Runtime | str:
    """What answers there, or in a sentence why that is not known. Takes at most twice the time."""
    try:
        with connect(socket) as channel:
            said = dict(_fields(_call(channel, "Version", b"", timeout_seconds)))
            info = _info(_call(channel, "Status", _VERBOSE, timeout_seconds))
    except grpc.RpcError as error:
        told: Any = error  # each RpcError that a call raises is a grpc.Call too, and the types cannot say that
        return f"{socket} does not answer: {told.code().name}: {told.details()}"
    except (ValueError, IndexError) as error:
        return f"{socket} answers with something else than CRI: {error}"
    config = info.get("config")
    return Runtime(_text(said.get(2)), _text(said.get(3)), config if isinstance(config, dict) else {})


def _call(channel: grpc.Channel, method: str, request: bytes, timeout_seconds: float) -> bytes:
    call = channel.unary_unary(f"/{_SERVICE}/{method}", _as_it_is, _as_it_is)
    return call(request, timeout=timeout_seconds)


def _as_it_is(message: bytes) -> bytes:
    return message


def _info(status: bytes) -> dict[str, Any]:
    """`StatusResponse.info`, a map of names to JSON."""
    found = {}
    for number, value in _fields(status):
        if number == 2 and isinstance(value, bytes):
            entry = dict(_fields(value))
            try:
                found[_text(entry.get(1))] = json.loads(_text(entry.get(2)))
            except ValueError:
                continue  # not all of them are JSON
    return found


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protobuf message, undecoded. ValueError or IndexError for what is none (protobuf.dev, Encoding)."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_I64, _I32):
            size = 8 if kind == _I64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("cut off")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than ten bytes")


def _text(value: bytes | int | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
