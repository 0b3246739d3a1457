"""Views: one declaration makes a page, its JSON, the routes of both and the operation of the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiohttp import web

from bot.web import addresses, html, openapi, page_cache
from bot.web.answers import send_json
from bot.web.parameters import describe_parameters, open_query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from msgspec import Struct

    from bot.web.parameters import Form, Parameter, Query

    Handler = Callable[[web.Request], Awaitable[web.Response]]

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Page(Generic[R]):
    """How a result is shown to people."""

    path: str
    template: str
    values: Callable[[R], dict[str, Any]]  # what the template shows
    refresh: int | Callable[[R], int] | None = 0  # seconds; 0: only where a reader turns it on, None: never


@dataclass(frozen=True, kw_only=True)
class Json(Generic[R]):
    """How a result is sent to programs, and described."""

    path: str
    answer: Callable[[R], Struct]
    content: Any  # type of the answer, or a Content
    name: str  # of the operation
    summary: str
    topic: openapi.Topic
    description: str = ""
    refusals: Sequence[openapi.Refusal] = ()  # beside those of every read
    named: Sequence[type] = ()  # structs that `content` refers to by name only
    etag: bool = False  # whether a caller that has the answer gets 304
    # the parts of the address that the page links, and then its query; `repo` is a full name; None: no link
    link: Callable[[R], Mapping[str, object] | None] = lambda _: {}


@dataclass(frozen=True, kw_only=True)
class View(Generic[R]):
    """What can be read at one address for people, one for programs, or both."""

    read: Callable[[Query], Awaitable[R]]
    parameters: Sequence[Parameter[Any]] = ()
    complete: Callable[[Query, R], Awaitable[R]] | None = None  # after the transaction: it may take long
    page: Page[R] | None = None
    json: Json[R] | None = None
    of_upstream: bool = False  # whether there is nothing to see where all of upstream is hidden


@dataclass(frozen=True)
class Endpoint:
    """An address with a handler of its own: a stream, a download, a redirect, a form, a webhook."""

    route: web.RouteDef
    operation: openapi.Operation | None = None


def routes(views: Iterable[View[Any] | Endpoint]) -> list[web.RouteDef]:
    """Return the routes of some views, in their order."""
    definitions = []
    for view in views:
        if isinstance(view, Endpoint):
            definitions.append(view.route)
            continue
        if view.page:
            definitions.append(web.get(view.page.path, html.page(_page_handler(view, view.page))))
        if view.json:
            wrap = page_cache.with_etag if view.json.etag else page_cache.in_render_thread
            definitions.append(web.get(view.json.path, wrap(_json_handler(view, view.json))))
    return definitions


def operations(views: Iterable[View[Any] | Endpoint]) -> list[openapi.Operation]:
    """Return what the OpenAPI document says of some views, in their order."""
    described = [view.operation if isinstance(view, Endpoint) else _operation(view) for view in views]
    return [operation for operation in described if operation]


async def _result(view: View[R], request: web.Request, form: Form) -> R:
    async with open_query(request, view.parameters, form=form) as query:
        if view.of_upstream:
            query.hidden.check_upstream(query.context.settings)
        result = await view.read(query)
    return await view.complete(query, result) if view.complete else result


def _page_handler(view: View[R], page: Page[R]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        result = await _result(view, request, "page")
        every = page.refresh(result) if callable(page.refresh) else page.refresh
        fresh = None if every is None else addresses.read_refresh(request, default=every)
        link = view.json.link(result) if view.json else None
        json_url = addresses.address(request, view.json.path, link) if view.json and link is not None else ""
        values = {"json_url": json_url} | page.values(result)
        return html.render(request, page.template, fresh=fresh, **values)

    return handle


def _json_handler(view: View[R], json: Json[R]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return send_json(json.answer(await _result(view, request, "json")))

    return handle


def _operation(view: View[Any]) -> openapi.Operation | None:
    json, described = view.json, describe_parameters(view.parameters)
    if json is None:
        return None
    wrong = [openapi.WRONG_PARAMETER] if any(schema["in"] == "query" for schema in described) else []
    return openapi.Operation(
        f"GET {addresses.canonical(json.path)}",
        json.name,
        json.summary,
        json.content,
        topic=json.topic,
        callers=openapi.READER,
        parameters=described,
        refusals=[*wrong, *json.refusals, *openapi.READING],
        named=json.named,
        description=json.description,
    )
