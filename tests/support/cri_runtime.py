"""A container runtime that answers two calls of the CRI on a socket, with bytes put together here by hand."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc


def field(number: int, content: bytes | str) -> bytes:
    """A field of text or bytes."""
    raw = content.encode() if isinstance(content, str) else content
    size, length = len(raw), b""
    while True:
        size, low = size >> 7, size & 0x7F
        length += bytes([low | (0x80 if size else 0)])
        if not size:
            return bytes([number << 3 | 2]) + length + raw


def version(name: str, number: str) -> bytes:
    """A VersionResponse."""
    return field(1, "0.1.0") + field(2, name) + field(3, number) + field(4, "v1")


def status(config: Any) -> bytes:
    """A StatusResponse with a configuration, and with fields of other kinds beside it."""
    entries = {"config": json.dumps(config), "golang": '"go1.26"', "odd": "no JSON"}
    info = b"".join(field(2, field(1, key) + field(2, value)) for key, value in entries.items())
    return field(1, b"\x0a\x00") + info + b"\x18\x96\x01" + b"\x21" + b"8bytes.." + b"\x2d" + b"4by."


@contextmanager
def a_runtime(socket: Path, answers: dict[str, bytes]) -> Iterator[list[tuple[str, bytes]]]:
    """Listens while the block lasts; gives what it was asked."""
    asked: list[tuple[str, bytes]] = []

    def answer(name: str) -> Any:
        def call(request: bytes, _: Any) -> bytes:
            asked.append((name, request))
            return answers[name]

        return grpc.unary_unary_rpc_method_handler(call)

    with ThreadPoolExecutor(1) as hands:
        server = grpc.server(hands)
        handler = grpc.method_handlers_generic_handler(
            "runtime.v1.RuntimeService", {name: answer(name) for name in answers}
        )
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        try:
            yield asked
        finally:
            server.stop(0).wait()
