"""CDI's file format as a JSON schema: a second opinion on what our own validator says.

What the published schema lacks is here: unknown fields are refused, and `env` items are checked.
"""

from typing import Any

import fastjsonschema

_TEXT = {"type": "string"}
_PATH = {"type": "string", "pattern": "^/"}
_ENV = {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}}
_ID = {"type": "integer", "minimum": 0, "maximum": 4294967295}
_NUMBER = {"type": "integer", "minimum": 0}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_EDITS = _object(
    {
        "env": _ENV,
        "deviceNodes": {
            "type": "array",
            "items": _object(
                {
                    "path": _PATH,
                    "hostPath": _PATH,
                    "type": {"enum": ["", "b", "c", "u", "p"]},
                    "major": _NUMBER,
                    "minor": _NUMBER,
                    "fileMode": {"type": "integer", "minimum": 0, "maximum": 4095},
                    "permissions": {"type": "string", "pattern": "^([rwm]*|none)$"},
                    "uid": _ID,
                    "gid": _ID,
                },
                "path",
            ),
        },
        "mounts": {
            "type": "array",
            "items": _object(
                {
                    "hostPath": {"type": "string", "minLength": 1},
                    "containerPath": _PATH,
                    "options": {"type": "array", "items": {"type": "string", "minLength": 1}},
                    "type": _TEXT,
                },
                "hostPath",
                "containerPath",
            ),
        },
        "hooks": {
            "type": "array",
            "items": _object(
                {
                    "hookName": {
                        "enum": [
                            "prestart",
                            "createRuntime",
                            "createContainer",
                            "startContainer",
                            "poststart",
                            "poststop",
                        ]
                    },
                    "path": _PATH,
                    "args": {"type": "array", "items": _TEXT},
                    "env": _ENV,
                    "timeout": _NUMBER,
                },
                "hookName",
                "path",
            ),
        },
        "additionalGids": {"type": "array", "items": _ID},
        "netDevices": {
            "type": "array",
            "items": _object({"hostInterfaceName": _TEXT, "name": _TEXT}, "hostInterfaceName", "name"),
        },
        "intelRdt": {"type": "object"},
    }
)

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_object(
        {
            "cdiVersion": {"type": "string", "pattern": r"^(0\.[1-8]\.0|1\.[01]\.0)$"},
            "kind": {
                "type": "string",
                "pattern": r"^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
            },
            "annotations": {"type": "object", "additionalProperties": _TEXT},
            "devices": {
                "type": "array",
                "minItems": 1,
                "items": _object(
                    {
                        "name": {"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
                        "annotations": {"type": "object", "additionalProperties": _TEXT},
                        "containerEdits": {**_EDITS, "minProperties": 1},
                    },
                    "name",
                    "containerEdits",
                ),
            },
            "containerEdits": _EDITS,
        },
        "cdiVersion",
        "kind",
        "devices",
    ),
}

_check = fastjsonschema.compile(SCHEMA)


def accepts(document: Any) -> bool:
    """Whether the document has the shape of a CDI file."""
    try:
        _check(document)
    except fastjsonschema.JsonSchemaException:
        return False
    return True
