"""The file that keeps which GPUs this boot has had, and what ails them: how it is read and written.

The promise: format 1 is read by every version from the first on; fields may be added. What cannot be read is worth nothing, so
it is set aside and all begins anew: GPUs that are there are found again, and an ailment that lasts is seen again, as a new one.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from api.hardware import Gpu
from api.inventory import decode_gpu, encode_gpu

FORMAT = 1
NAME = "health.json"


@dataclass(frozen=True, slots=True)
class Page:
    """What the file says."""

    boot_id: str = ""
    driver_load: str = ""
    gpus: tuple[Gpu, ...] = ()
    """Each with its ailments."""


def encode(page: Page) -> bytes:
    """The file's content; equal pages give equal bytes."""
    document = {
        "format": FORMAT,
        "bootID": page.boot_id,
        "driverLoad": page.driver_load,
        "gpus": [encode_gpu(gpu) for gpu in page.gpus],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def decode(content: bytes) -> Page:
    """Read it; ValueError with what is wrong."""
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise ValueError("is no JSON" if content.strip() else "is empty") from error
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"has format {str(document['format'])[:20]}")
        gpus = tuple(decode_gpu(gpu) for gpu in document["gpus"])
        return Page(str(document["bootID"]), str(document["driverLoad"]), gpus)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"lacks {error}" if isinstance(error, KeyError) else str(error)) from error


def plain(gpu: Gpu) -> Gpu:
    """The GPU without its ailments."""
    return replace(gpu, ailments=()) if gpu.ailments else gpu
