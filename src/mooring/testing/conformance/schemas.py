"""Schemas and questions of the conformance server, as its suite wants them. Pure."""

from __future__ import annotations

from mooring.testing.peer import JSON


def properties(**types: str) -> JSON:
    """An input schema in which all properties are required."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": [*types],
    }


def elicit(message: str, fields: JSON, *required: str) -> JSON:
    """A question to the user."""
    schema: JSON = {"type": "object", "properties": fields}
    if required:
        schema["required"] = list(required)
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def sample(prompt: str, tokens: int = 100) -> JSON:
    """A question to the model."""
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


DEFAULTS: JSON = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
"""SEP-1034: a default value of each type."""

_PLAIN = ["option1", "option2", "option3"]
_ORDINALS = {"value1": "First", "value2": "Second", "value3": "Third"}


def _titled(noun: str) -> list[JSON]:
    return [{"const": value, "title": f"{ordinal} {noun}"} for value, ordinal in _ORDINALS.items()]


ENUMS: JSON = {
    "untitledSingle": {"type": "string", "enum": _PLAIN},
    "titledSingle": {"type": "string", "oneOf": _titled("Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": _titled("Choice")}},
}
"""SEP-1330: each kind of choice."""

MIRRORED: JSON = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}
"""SEP-2243: an argument that HTTP clients repeat in the header ``Mcp-Param-Region``."""

ADDRESS: JSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""SEP-1613, SEP-2106: keywords of JSON Schema 2020-12 that must survive."""
