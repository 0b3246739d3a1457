"""Parameters of views, each declared once: how it is read from an address, and how OpenAPI describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import Meta

from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of
from bot.web.asked import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import web

    from bot.web.asked import Form

    Only = Form | Literal[""]

T = TypeVar("T")
# other addresses begin with these words: /oot/{org}/{repo} is no page of a repository
OWNER = r"{owner:(?!(?:oot|hud|api|admin|static|failures)/)[^{}/]+}"
REPOSITORY = f"/{OWNER}/{{repo}}"
COUNTED_BACK = "the window, counted back from now"
TEXT_MOST = 1_000  # characters


def repository(owner: str = "owner") -> Parameter[str]:
    """Return the repository in the path, as owner/name."""
    return Parameter("repo", lambda request: parameters.repo(request, owner), "", op.repository(owner))


REPO = repository()


def in_path(
    name: str, kind: Any, description: str, *, parse: Callable[[str], T], default: T, only: Only = ""
) -> Parameter[T]:
    """Return another part of the path; `parse` gets its text, or the empty text where the route has no such part."""
    schema = op.in_path(name, kind, description)
    return Parameter(
        name, lambda request: parse(request.match_info.get(name, "")), default, (schema,), only=only
    )


def identifier(name: str, description: str) -> Parameter[int]:
    """Return an id or number in the path; 0, which GitHub never uses, for an impossible one."""
    return in_path(name, op.Number, description, parse=parameters.number, default=0)


def commit(description: str, name: str = "sha") -> Parameter[str]:
    """Return a commit in the path, or the beginning of its SHA."""
    kind = Annotated[str, matching(parameters.SHA)]
    return in_path(name, kind, description, parse=parameters.commit, default="")


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
        text = parameters.given(request, name)
        return parse(text) if text else default

    return Parameter(name, read, default, (op.in_query(name, kind, description, **described),), only=only)


def text(name: str, description: str, *, most: int = TEXT_MOST, only: Only = "") -> Parameter[str]:
    """Return a text, which is cut off after `most` characters; empty without it."""
    return parsed(name, op.Text, description, parse=lambda given: given[:most], default="", only=only)


def another_repository(name: str, description: str) -> Parameter[str]:
    """Return a repository that the query names, which may be hidden; empty without it."""

    def read(request: web.Request) -> str:
        return parameters.given(request, name)

    return Parameter(name, read, "", (op.in_query(name, op.Text, description),), names_repository=True)


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
        lambda request: parameters.choice(request, name, choices),
        choices[0],
        (op.in_query(name, kind, description, **default),),
        only=only,
    )


def whole(name: str, most: int, description: str, *, default: int, only: Only = "") -> Parameter[int]:
    """Return a whole number from 1."""
    return Parameter(
        name,
        lambda request: parameters.whole(request, name, default=default, most=most),
        default,
        (op.whole(name, most, description, default=default),),
        only=only,
    )


def optional_whole(name: str, most: int, description: str, *, only: Only = "") -> Parameter[int | None]:
    """Return a whole number from 1, None without it."""
    return Parameter(
        name,
        lambda request: parameters.whole(request, name, default=0, most=most) or None,
        None,
        (op.whole(name, most, description),),
        only=only,
    )


def days(description: str = COUNTED_BACK, *, default: int = parameters.DAYS) -> Parameter[int]:
    """Return a window in days."""
    return whole("days", parameters.MOST_DAYS, description, default=default)


def day(name: str, description: str, *, only: Only = "") -> Parameter[int | None]:
    """Return a day (UTC), written as 2026-11-25, as its number since 1970; None without it."""
    kind = Annotated[str, matching(parameters.DATE), Meta(extra_json_schema={"format": "date"})]
    return parsed(
        name, kind, description, parse=lambda given: parameters.day(name, given), default=None, only=only
    )


def limit(default: int, *, most: int = op.MOST_ROWS) -> Parameter[int]:
    """Return how many rows JSON has at most; a page has its own."""
    return whole("limit", most, "how many rows at most", default=default, only="json")


def before(texts: Sequence[bool], *, only: Only = "json") -> Parameter[tuple[str | int, ...] | None]:
    """Return the position to continue from; `texts` says for each of its parts whether it is text or a number."""
    return Parameter(
        "before", lambda request: parameters.before(request, texts), None, (op.before(),), only=only
    )
