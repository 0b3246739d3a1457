"""Answers: JSON as structs filled from rows, and CSV in which no spreadsheet finds a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.core import escaping
from bot.core.json_fields import iso_time
from bot.db.rows import fields

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.rows import Field

REF = "#/components/schemas/{name}"
S = TypeVar("S", bound=Struct)
# no `const`: common generators of clients refuse one that is a boolean
# marks a field whose default is its only value; the document says that it is always there
ALWAYS = "x-always"
Yes = Annotated[bool, Meta(description="always true", extra_json_schema={ALWAYS: True})]
No = Annotated[bool, Meta(description="always false", extra_json_schema={ALWAYS: True})]
A_TIME = Meta(extra_json_schema={"format": "date-time"}, examples=["2026-01-31T12:00:00Z"])
Time = Annotated[str, A_TIME]
CSV_FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%")  # what a cell must not begin with


class Answer(Struct, frozen=True, kw_only=True):
    """An answer that is no refusal; its fields follow `ok`."""

    ok: Yes = True


class Error(Struct, frozen=True, kw_only=True):
    """A refusal."""

    ok: No = False
    error: Annotated[str, Meta(description="a code for programs")]
    detail: Annotated[str, Meta(description="what is wrong and what to do, for people")]


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


def time(at: int | None) -> str | None:
    """Return a time as GitHub writes it; unknown stays unknown."""
    return None if at is None else iso_time(at)


def fill_struct(kind: type[S], source: object, /, **others: Any) -> S:
    """Return a struct with the values of a row or object that has fields of the same names, and with `others`.

    Where a field is a `Time`, the source holds epoch milliseconds.
    """
    fields, times = _fields(kind)
    get = source.__getitem__ if isinstance(source, Mapping) else partial(getattr, source)
    values = {name: get(name) for name in fields if name not in others}
    for name in times & values.keys():
        values[name] = time(values[name])
    return kind(**values, **others)


def send_json(answer: Struct, *, status: int = 200) -> web.Response:
    """Return an answer as JSON."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=msgspec.json.encode(answer), status=status, headers=headers)


class _FromRow(msgspec.StructMeta):
    """Adds the columns of a row class to what a struct declares."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        row: type | None = None,
        only: Sequence[str] = (),
        without: Collection[str] = (),
        **options: Any,
    ) -> Any:
        if row is not None:
            own = namespace.get("__annotations__", {})
            namespace["__annotations__"] = answer_fields(row, own, only=only, without=without)
        return super().__new__(cls, name, bases, namespace, **options)


class RowAnswer(Struct, frozen=True, metaclass=_FromRow):
    """A struct with the columns of `row`: all, those named by `only` in its order, or all `without` some.

    Times are sent as texts. `fill_struct` makes one of a row. A field that the class declares itself takes the
    place of the column of its name or of its name in `only`; otherwise it comes last.
    """


def answer_fields(
    row: type, own: dict[str, Any], *, only: Sequence[str] = (), without: Collection[str] = ()
) -> dict[str, Any]:
    """Return the fields of an answer that shows columns of a row class, and of its own.

    Raises TypeError for a column that there is not.
    """
    columns = fields(row)
    if unknown := {*only, *without} - columns.keys() - own.keys():
        raise TypeError(f"{row.__name__} has no {', '.join(sorted(unknown))}")
    names = [name for name in only or columns if name not in without]
    return {name: own[name] if name in own else _shown_fields(columns[name]) for name in names} | own


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return CSV with a line of names; everything but numbers is text, whatever it begins with."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([csv_cell(row[name]) for name in columns])
    return text.getvalue()


def csv_cell(value: object) -> str:
    """Return one value; an apostrophe before what could be a formula makes it a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    plain = escaping.clean(text)
    return f"'{plain}" if plain.lstrip().startswith(CSV_FORMULA) or plain.startswith(CSV_FORMULA) else plain


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the names of what a row has to hold for this struct, and which of them are times."""
    fields = msgspec.structs.fields(kind)
    times = frozenset(field.name for field in fields if _is_time(field.type))
    return tuple(field.name for field in fields if field.required), times


def _is_time(kind: Any) -> bool:
    return A_TIME in get_args(kind) or any(map(_is_time, get_args(kind)))


def _shown_fields(column: Field) -> Any:
    kind = Time if column.is_time else column.type
    return kind | None if column.nullable else kind
