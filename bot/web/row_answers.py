"""Answers in JSON that show columns of a row: they name the row class, and declare only what they change or add.

class Job(RowAnswer, row=JobRow, without=("job_key",), frozen=True):
\"\"\"One attempt of one job.\"\"\"

status: Status  # narrower than the column's type, in its place
page_url: str  # computed; comes last
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from bot.db.rows import fields
from bot.web.answers import Time

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.rows import Field


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

    Times are sent as texts. `bot.web.answers.fill` makes one of a row. A field that the class declares itself takes the
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
    return {name: own[name] if name in own else _shown(columns[name]) for name in names} | own


def _shown(column: Field) -> Any:
    kind = Time if column.is_time else column.type
    return kind | None if column.nullable else kind
