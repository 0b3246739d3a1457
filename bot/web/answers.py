"""Answers in JSON: the structs they are declared with, filled from rows, and sent.

The OpenAPI document is made from the same structs, with their docstrings as descriptions. Their types are read at run
time: import them outside `if TYPE_CHECKING`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.core.json_fields import iso_time

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

REF = "#/components/schemas/{name}"
S = TypeVar("S", bound=Struct)


def one_of(values: Iterable[object]) -> Meta:
    """Return the constraint of a choice, for the document: what is sent or read is not checked against it."""
    return Meta(extra_json_schema={"enum": list(values)})


def matching(pattern: re.Pattern[str] | str) -> Meta:
    """Return the constraint of a text that has this form as a whole; for the document, as `one_of`."""
    form = pattern if isinstance(pattern, str) else pattern.pattern
    return Meta(extra_json_schema={"pattern": f"^(?:{form})$"})


def reference(name: str, **beside: Any) -> Meta:
    """Return a reference to the schema of this name, where the type itself cannot say so."""
    return Meta(extra_json_schema={"$ref": REF.format(name=name)} | beside)


def any_of(kinds: Iterable[type]) -> Meta:
    """Return the choice between some structs."""
    return Meta(extra_json_schema={"anyOf": [{"$ref": REF.format(name=kind.__name__)} for kind in kinds]})


# no `const`: common generators of clients refuse one that is a boolean
ALWAYS = (
    "x-always"  # marks a field whose default is its only value; the document says that it is always there
)
Yes = Annotated[bool, Meta(description="always true", extra_json_schema={ALWAYS: True})]
No = Annotated[bool, Meta(description="always false", extra_json_schema={ALWAYS: True})]
A_TIME = Meta(extra_json_schema={"format": "date-time"}, examples=["2026-01-31T12:00:00Z"])
Time = Annotated[str, A_TIME]


class Answer(Struct, frozen=True, kw_only=True):
    """An answer that is no refusal; its fields follow `ok`."""

    ok: Yes = True


class Error(Struct, frozen=True, kw_only=True):
    """A refusal."""

    ok: No = False
    error: Annotated[str, Meta(description="a code for programs")]
    detail: Annotated[str, Meta(description="what is wrong and what to do, for people")]


def time(at: int | None) -> str | None:
    """Return a time as GitHub writes it; unknown stays unknown."""
    return None if at is None else iso_time(at)


def fill(kind: type[S], source: object, /, **others: Any) -> S:
    """Return a struct with the values of a row or object that has fields of the same names, and with `others`.

    Where a field is a `Time`, the source holds epoch milliseconds.
    """
    fields, times = _fields(kind)
    get = source.__getitem__ if isinstance(source, Mapping) else partial(getattr, source)
    values = {name: get(name) for name in fields if name not in others}
    for name in times & values.keys():
        values[name] = time(values[name])
    return kind(**values, **others)


def send(answer: Struct, *, status: int = 200) -> web.Response:
    """Return an answer as JSON."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=msgspec.json.encode(answer), status=status, headers=headers)


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the names of what a row has to hold for this struct, and which of them are times."""
    fields = msgspec.structs.fields(kind)
    times = frozenset(field.name for field in fields if _is_time(field.type))
    return tuple(field.name for field in fields if field.required), times


def _is_time(kind: Any) -> bool:
    return A_TIME in get_args(kind) or any(map(_is_time, get_args(kind)))
