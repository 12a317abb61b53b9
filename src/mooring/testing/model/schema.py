"""The smallest value that satisfies a JSON schema: the answer to side requests that ask for JSON. Pure."""

from __future__ import annotations

import math
from typing import Any, cast

Schema = dict[str, Any]

_DEPTH = 50
_STEP = 0.5
"""From a bound that is no value itself."""


def smallest(schema: Any, root: Schema | None = None, depth: int = 0) -> Any:
    """A value for ``schema``, with no more in it than is required; of alternatives the first. Understands what clients
    use: const, enum, $ref within the schema, anyOf, oneOf, allOf, the types (in capitals too, as Gemini writes them),
    required, and bounds of numbers and lengths. Raises ValueError when a schema requires itself."""
    if not isinstance(schema, dict):
        return {}  # true, or nothing: anything will do
    if depth > _DEPTH:
        raise ValueError("the schema requires itself")
    own = cast(Schema, schema)
    root = own if root is None else root

    def inner(part: Any) -> Any:
        return smallest(part, root, depth + 1)

    if "$ref" in own:
        return inner({**_referred(str(own["$ref"]), root), **_without(own, "$ref")})
    if "const" in own:
        return own["const"]
    if own.get("enum"):
        return own["enum"][0]
    for key in ("anyOf", "oneOf"):
        if own.get(key):
            return inner(_merged(_without(own, key), own[key][0]))
    if own.get("allOf"):
        whole = _without(own, "allOf")
        for part in own["allOf"]:
            whole = _merged(whole, part)
        return inner(whole)
    match _kind(own):
        case "object":
            properties = cast(Schema, own.get("properties", {}))
            return {name: inner(properties.get(name)) for name in own.get("required", ())}
        case "array":
            return [inner(own.get("items"))] * int(own.get("minItems", 0))
        case "string":
            return "x" * int(own.get("minLength", 0))
        case "integer" | "number" as number:
            return _number(own, whole=number == "integer")
        case "boolean":
            return False
        case _:
            return None


def _kind(schema: Schema) -> str:
    kind: Any = schema.get("type", "object")
    return str(kind if isinstance(kind, str) else kind[0]).lower()


def _number(schema: Schema, whole: bool) -> float:
    """The smallest one from 0 up, or the largest below."""
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if whole:  # the same bounds in whole numbers, all of them inclusive
        low = max(low if math.isinf(low) else math.ceil(low), above if math.isinf(above) else math.floor(above) + 1)
        high = min(high if math.isinf(high) else math.floor(high), below if math.isinf(below) else math.ceil(below) - 1)
        return low if low > 0 else min(high, 0)
    if above >= max(low, 0):
        return above + _STEP
    if below <= min(high, 0):
        return below - _STEP
    return low if low > 0 else min(high, 0)


def _referred(reference: str, root: Schema) -> Schema:
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def _without(schema: Schema, key: str) -> Schema:
    return {name: value for name, value in schema.items() if name != key}


def _merged(one: Schema, other: Schema) -> Schema:
    """Both at once, as far as objects go."""
    whole = {**one, **other}
    if "properties" in one and "properties" in other:
        whole["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        whole["required"] = [*one["required"], *other["required"]]
    return whole
