"""What a request asks for: parameters, each declared once, with how it is read and how OpenAPI describes it.

A request's parameters are checked, and read together with what it may not see.
"""

from __future__ import annotations

import contextlib
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, cast

from msgspec import Meta

from bot.web import access, addresses, openapi
from bot.web.access import CONTEXT
from bot.web.answers import matching, one_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from aiohttp import web

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden
    from bot.web.openapi import Schema

T = TypeVar("T")
Form = Literal["page", "json"]
Only = Form | Literal[""]
# other addresses begin with these words: /oot/{org}/{repo} is no page of a repository
OWNER = r"{owner:(?!(?:oot|hud|api|admin|static|failures)/)[^{}/]+}"
REPOSITORY = f"/{OWNER}/{{repo}}"
COUNTED_BACK = "the window, counted back from now"
TEXT_MOST = 1_000  # characters


@dataclass(frozen=True, eq=False)
class Parameter(Generic[T]):
    """A part of an address: how to read it from a request, and what the OpenAPI document says of it.

    `bot.web.parameters` makes the usual ones.
    """

    name: str
    read: Callable[[web.Request], T]  # raises Rejected
    default: T
    schemas: tuple[Schema, ...] = ()
    _: KW_ONLY
    only: Form | Literal[""] = ""  # the form that has it; empty: both
    names_repository: bool = False  # which may be hidden


@dataclass(frozen=True, kw_only=True)
class Query:
    """A request with its checked parameters, and the transaction that reads for it."""

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
        """Whether a page is made, which may show more than its JSON."""
        return self.form == "page"

    def __getitem__(self, parameter: Parameter[T]) -> T:
        """Return a parameter's value; its default, if only the other form has it."""
        return cast("T", self.values[parameter])


def describe_parameters(known: Iterable[Parameter[Any]]) -> list[Schema]:
    """Return what the OpenAPI document says of some parameters."""
    return [schema for parameter in known if parameter.only != "page" for schema in parameter.schemas]


@contextlib.asynccontextmanager
async def open_query(
    request: web.Request, known: Iterable[Parameter[Any]], *, form: Form = "json"
) -> AsyncIterator[Query]:
    """Check the parameters, begin a transaction, and read what the request may not see; raises Rejected."""
    context = request.app[CONTEXT]
    values = {
        parameter: parameter.read(request) if parameter.only in {"", form} else parameter.default
        for parameter in known
    }
    named = [str(name) for parameter, name in values.items() if parameter.names_repository and name]
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx, *named)
        yield Query(request=request, context=context, tx=tx, hidden=hidden, form=form, values=values)


def repository(owner: str = "owner") -> Parameter[str]:
    """Return the repository in the path, as owner/name."""
    return Parameter("repo", lambda request: addresses.repo(request, owner), "", openapi.repository(owner))


REPO = repository()


def in_path(
    name: str, kind: Any, description: str, *, parse: Callable[[str], T], default: T, only: Only = ""
) -> Parameter[T]:
    """Return another part of the path; `parse` gets its text, or the empty text where the route has no such part."""
    schema = openapi.in_path(name, kind, description)
    return Parameter(
        name, lambda request: parse(request.match_info.get(name, "")), default, (schema,), only=only
    )


def identifier(name: str, description: str) -> Parameter[int]:
    """Return an id or number in the path; 0, which GitHub never uses, for an impossible one."""
    return in_path(name, openapi.Number, description, parse=addresses.number, default=0)


def commit(description: str, name: str = "sha") -> Parameter[str]:
    """Return a commit in the path, or the beginning of its SHA."""
    kind = Annotated[str, matching(addresses.SHA)]
    return in_path(name, kind, description, parse=addresses.commit, default="")


def parsed(
    name: str,
    kind: Any,
    description: str,
    *,
    parse: Callable[[str], T],
    default: T,
    only: Only = "",
    tell_default: bool = False,
) -> Parameter[T]:
    """Return a parameter of the query that `parse` reads, where it is given; it raises Rejected 400."""
    described = {"default": default} if tell_default else {}

    def read(request: web.Request) -> T:
        text = addresses.given(request, name)
        return parse(text) if text else default

    return Parameter(
        name, read, default, (openapi.in_query(name, kind, description, **described),), only=only
    )


def text(name: str, description: str, *, most: int = TEXT_MOST, only: Only = "") -> Parameter[str]:
    """Return a text, which is cut off after `most` characters; empty without it."""
    return parsed(name, openapi.Text, description, parse=lambda given: given[:most], default="", only=only)


def another_repository(name: str, description: str) -> Parameter[str]:
    """Return a repository that the query names, which may be hidden; empty without it."""

    def read(request: web.Request) -> str:
        return addresses.given(request, name)

    return Parameter(
        name, read, "", (openapi.in_query(name, openapi.Text, description),), names_repository=True
    )


def flag(name: str, description: str, *, only: Only = "") -> Parameter[bool]:
    """Return whether a parameter is 1."""
    kind = Annotated[str, one_of(["1"])]
    return parsed(name, kind, description, parse=lambda given: given == "1", default=False, only=only)


def choice(name: str, choices: Sequence[str], description: str, *, only: Only = "") -> Parameter[str]:
    """Return one of some words; without it the first, which may be empty."""
    kind = Annotated[str, one_of(word for word in choices if word)]
    default = {"default": choices[0]} if choices[0] else {}
    return Parameter(
        name,
        lambda request: addresses.choice(request, name, choices),
        choices[0],
        (openapi.in_query(name, kind, description, **default),),
        only=only,
    )


def whole(name: str, most: int, description: str, *, default: int, only: Only = "") -> Parameter[int]:
    """Return a whole number from 1."""
    return Parameter(
        name,
        lambda request: addresses.whole(request, name, default=default, most=most),
        default,
        (openapi.whole(name, most, description, default=default),),
        only=only,
    )


def optional_whole(name: str, most: int, description: str, *, only: Only = "") -> Parameter[int | None]:
    """Return a whole number from 1, None without it."""
    return Parameter(
        name,
        lambda request: addresses.whole(request, name, default=0, most=most) or None,
        None,
        (openapi.whole(name, most, description),),
        only=only,
    )


def days(description: str = COUNTED_BACK, *, default: int = addresses.DAYS) -> Parameter[int]:
    """Return a window in days."""
    return whole("days", addresses.MOST_DAYS, description, default=default)


def day(name: str, description: str, *, only: Only = "") -> Parameter[int | None]:
    """Return a day (UTC), written as 2026-11-25, as its number since 1970; None without it."""
    kind = Annotated[str, matching(addresses.DATE), Meta(extra_json_schema={"format": "date"})]
    return parsed(
        name, kind, description, parse=lambda given: addresses.day(name, given), default=None, only=only
    )


def limit(default: int, *, most: int = openapi.MOST_ROWS) -> Parameter[int]:
    """Return the most rows of a JSON answer; a page has a limit of its own."""
    return whole("limit", most, "how many rows at most", default=default, only="json")


def before(texts: Sequence[bool], *, only: Only = "json") -> Parameter[tuple[str | int, ...] | None]:
    """Return the position to continue from; `texts` says for each of its parts whether it is text or a number."""
    return Parameter(
        "before", lambda request: addresses.before(request, texts), None, (openapi.before(),), only=only
    )
