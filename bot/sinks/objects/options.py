"""The options of sinks of kind `objects`."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

import msgspec

SCHEMES = ("s3", "gs", "az", "file")


class ObjectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where objects go, and under which keys."""

    url: str
    layout: Literal["raw", "upstream"] = "raw"


def object_layout(options: ObjectOptions) -> str:
    """Return the layout that exports have shapes for."""
    return options.layout


def find_problem(options: ObjectOptions) -> str:
    """Return what is wrong with these options, empty where nothing is."""
    try:
        parts = urlsplit(options.url)
        place = parts.path.strip("/") if parts.scheme == "file" else parts.hostname
    except ValueError:
        parts, place = None, ""
    if parts is None or parts.scheme not in SCHEMES or not place:
        return "url is none of s3://bucket/prefix, gs://..., az://... and file:///folder"
    if parts.username or parts.password or parts.query:
        return "url must not hold credentials: the environment has them, under the names of the provider's own tools"
    return ""
