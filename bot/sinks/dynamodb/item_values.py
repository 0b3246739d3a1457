"""Values of JSON as attributes of DynamoDB's items, within the size that an item may have."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Context, Decimal, Inexact
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ITEM_MOST = 400 * 1024  # bytes, names and values together
RESERVE = 2 * 1024  # for the key, versions and the list of what was left out
DIGITS = 38  # of a number
LEFT_OUT_FIRST = ("body", "diff_hunk", "steps")  # what is large and of least use; then the largest
TRUNCATED = "_truncated"
NUMBER = Context(prec=DIGITS)

Attribute = dict[str, Any]


def as_attribute(value: Any) -> Attribute:
    """Return a value in DynamoDB's notation; numbers that it has not are texts, and bytes are refused."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return {"S": value.isoformat().replace("+00:00", "Z")}
    return _of_several(value)


def _of_several(value: Any) -> Attribute:
    if isinstance(value, dict):
        return {"M": {str(name): as_attribute(inner) for name, inner in value.items()}}
    if isinstance(value, list | tuple):
        return {"L": [as_attribute(inner) for inner in value]}
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def _number(value: float | Decimal) -> Attribute:
    if isinstance(value, float) and not math.isfinite(value):
        return {"S": str(value)}
    found = NUMBER.create_decimal(str(value))
    if NUMBER.flags[Inexact]:
        NUMBER.clear_flags()
        return {"S": str(value)}
    return {"N": format(found, "f") if abs(found.adjusted()) < DIGITS else str(found)}


def fit_item(attributes: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return the attributes of an item that are not null, as many as fit; the names of others are in `_truncated`."""
    found = {name: as_attribute(value) for name, value in attributes.items() if value is not None}
    sizes = {name: len(name.encode()) + size_of(value) for name, value in found.items()}
    left = sum(sizes.values())
    truncated: list[str] = []
    candidates = [name for name in LEFT_OUT_FIRST if name in sizes]
    candidates += sorted(sizes.keys() - set(candidates), key=lambda name: (-sizes[name], name))
    for name in candidates:
        if left <= ITEM_MOST - RESERVE:
            break
        left -= sizes[name]
        del found[name]
        truncated.append(name)
    if truncated:
        found[TRUNCATED] = as_attribute(truncated)
    return found


def size_of(attribute: Attribute) -> int:
    """Return the bytes that an attribute counts for, rather more than fewer."""
    ((kind, value),) = attribute.items()
    if kind == "S":
        return len(value.encode("utf-8", "surrogatepass"))
    if kind == "N":
        return len(value) // 2 + 3
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + size_of(inner) for name, inner in value.items())
    if kind == "L":
        return 3 + sum(1 + size_of(inner) for inner in value)
    return 1
