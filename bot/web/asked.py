"""What a request asks for: its parameters, each declared once, checked and with what it may not see."""

from __future__ import annotations

import contextlib
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from bot.web import access
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from aiohttp import web

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden
    from bot.web.operations import Schema

T = TypeVar("T")
Form = Literal["page", "json"]


@dataclass(frozen=True, eq=False)
class Parameter(Generic[T]):
    """A part of an address: how it is read from a request, and what the OpenAPI document says of it.

    `bot.web.view_parameters` makes the usual ones.
    """

    name: str
    read: Callable[[web.Request], T]  # raises Rejected
    default: T
    schemas: tuple[Schema, ...] = ()
    _: KW_ONLY
    only: Form | Literal[""] = ""  # the form that has it; empty: both
    names_repository: bool = False  # which may be hidden


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request with its checked parameters, in the transaction that it is read in."""

    request: web.Request
    context: Context
    tx: Transaction
    hidden: Hidden
    form: Form
    values: Mapping[Parameter[Any], object]

    @property
    def settings(self) -> Settings:
        """The program's settings."""
        return self.context.settings

    @property
    def for_page(self) -> bool:
        """Whether a page is to be made, which may show more than its JSON has."""
        return self.form == "page"

    def __getitem__(self, parameter: Parameter[T]) -> T:
        """Return a parameter's value; one that only the other form has is at its default."""
        return cast("T", self.values[parameter])


def describe(known: Iterable[Parameter[Any]]) -> list[Schema]:
    """Return what the OpenAPI document says of some parameters."""
    return [schema for one in known if one.only != "page" for schema in one.schemas]


@contextlib.asynccontextmanager
async def asking(
    request: web.Request, known: Iterable[Parameter[Any]], *, form: Form = "json"
) -> AsyncIterator[Asked]:
    """Check the parameters, begin to read, and find out what the request may not see; raises Rejected."""
    context = request.app[CONTEXT]
    values = {one: one.read(request) if one.only in {"", form} else one.default for one in known}
    named = [str(name) for one, name in values.items() if one.names_repository and name]
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx, *named)
        yield Asked(request=request, context=context, tx=tx, hidden=hidden, form=form, values=values)
