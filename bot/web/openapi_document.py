"""GET /api/openapi.json and /api: the operations of every part of the bot, as an OpenAPI document and as a page."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

import bot
from bot.web.access import CONTEXT
from bot.web.answers import ALWAYS, REF, Error
from bot.web.html import page, render
from bot.web.openapi import RUNNING, Content, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bot.web.openapi import Caller, Schema

ABOUT = """\
Every endpoint but the pages for people: each page links its JSON.

A refusal is always `{"ok": false, "error": "<code>", "detail": "<what is wrong and what to do>"}`. Where it says
`Retry-After`, the same request may succeed after that many seconds. A method an address does not have is answered 405
with `method_not_allowed`, an unknown address 404 with `not_found`. 500 with `internal_error` is a bug of ours.

Addresses that take a POST take it with a slash at the end, too.

Times are written like `2026-01-31T12:00:00Z`, durations are seconds, rates go from 0 to 1."""
RETRYABLE = frozenset({429, 503})  # statuses with Retry-After
RETRY_AFTER = {
    "description": "seconds to wait before sending the same again",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}
OPERATION = Operation(
    "GET /api/openapi.json", "openapi", "This document", Content(dict[str, Any], "OpenAPI 3.1"), topic=RUNNING
)


def document(url: str, operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of a bot at this address."""
    known = list(operations)
    schemas, components = _schemas(known)
    paths: dict[str, Any] = {}
    for operation in known:
        method, path = operation.address.split()
        paths.setdefault(path, {})[method.lower()] = _operation(operation, schemas, components)
    topics = {operation.topic.name: operation.topic.description for operation in known}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ootbot",
            "version": bot.__version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": name, "description": about} for name, about in topics.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {
                who.name: _scheme(who) for operation in known for who in operation.callers if who
            },
            "schemas": components,
        },
    }


class Document:
    """The document, made on first use."""

    def __init__(self, url: str, operations: Callable[[], Iterable[Operation]]) -> None:
        self._url = url
        self._operations = operations

    @functools.cached_property
    def content(self) -> dict[str, Any]:
        """What the document says."""
        return document(self._url, [*self._operations(), OPERATION])


DOCUMENT: web.AppKey[Document] = web.AppKey("openapi", Document)


def setup(app: web.Application, operations: Callable[[], Iterable[Operation]]) -> None:
    """Add the document and the two addresses it is read at."""
    app[DOCUMENT] = Document(app[CONTEXT].settings.url, operations)
    app.add_routes(routes)


async def as_json(request: web.Request) -> web.Response:
    """Answer with the document."""
    body = msgspec.json.encode(request.app[DOCUMENT].content)
    return web.Response(body=body, content_type="application/json")


@page
async def as_page(request: web.Request) -> web.Response:
    """Show every operation of the document, by topic."""
    content = request.app[DOCUMENT].content
    return render(
        request,
        "api.html",
        about=content["info"]["description"],
        topics=[(tag, _shown(content, tag["name"])) for tag in content["tags"]],
        schemes=content["components"]["securitySchemes"],
        json_url="/api/openapi.json",
    )


routes: list[web.RouteDef] = [web.get("/api/openapi.json", as_json), web.get("/api", as_page)]


def _schemas(operations: Iterable[Operation]) -> tuple[dict[Content, Schema], dict[str, Schema]]:
    """Return the schema of each body, and by name those of the structs in them."""
    contents = [
        body for operation in operations for body in (*operation.answers.values(), operation.body) if body
    ]
    named = dict.fromkeys(kind for operation in operations for kind in operation.named)
    types = [*(content.type for content in contents), *named, Error]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    for schema in components.values():
        _pairs_as_lists(schema)
        del schema["title"]  # the name again
        for name, field in schema.get("properties", {}).items():
            if field.pop(ALWAYS, False) and field.pop("default", None) is not None:
                schema["required"].insert(0, name)
    return dict(zip(contents, schemas, strict=False)), components


def _pairs_as_lists(schema: Any) -> None:
    """Describe tuples, whose items have one type, as lists of that length: generators refuse `"items": false`."""
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in inner:
        _pairs_as_lists(part)
    if isinstance(schema, dict) and schema.get("items") is False:
        schema["items"] = schema.pop("prefixItems")[0]


def _scheme(who: Caller) -> Schema:
    """Return how a caller shows who it is."""
    if who.header == "Authorization":
        return {"type": "http", "scheme": "bearer", "description": who.description}
    return {"type": "apiKey", "in": "header", "name": who.header, "description": who.description}


def _operation(
    operation: Operation, schemas: Mapping[Content, Schema], components: Mapping[str, Schema]
) -> Schema:
    """Return an operation as the document has it."""
    answers = {
        str(status): _content(content, schemas, components) for status, content in operation.answers.items()
    }
    made: Schema = {
        "operationId": operation.name,
        "tags": [operation.topic.name],
        "summary": operation.summary,
    }
    made["security"] = (
        [] if operation.callers == (None,) else [{who.name: []} if who else {} for who in operation.callers]
    )
    if operation.description:
        made["description"] = operation.description
    if operation.parameters:
        made["parameters"] = list(operation.parameters)
    if operation.body:
        made["requestBody"] = {"required": True} | _content(operation.body, schemas, components)
    return made | {"responses": dict(sorted((answers | _refusals(operation)).items()))}


def _content(content: Content, schemas: Mapping[Content, Schema], components: Mapping[str, Schema]) -> Schema:
    """Return a body with its schema; the description is by default the docstring of its struct."""
    schema = schemas[content]
    described = content.description or components[schema["$ref"].rpartition("/")[2]]["description"]
    example = {"example": content.example} if content.example else {}
    return {"description": described, "content": {content.media_type: {"schema": schema} | example}}


def _refusals(operation: Operation) -> dict[str, Schema]:
    """Return the refusals by status, all of one shape."""
    by_status: dict[int, dict[str, str]] = {}
    for status, code, when in operation.refusals:
        by_status.setdefault(status, {})[code] = when
    made: dict[str, Schema] = {}
    for status, codes in by_status.items():
        schema = {"$ref": REF.format(name="Error"), "properties": {"error": {"enum": list(codes)}}}
        made[str(status)] = {
            "description": "; ".join(f"`{code}`: {when}" for code, when in codes.items()),
            "content": {"application/json": {"schema": schema}},
        }
        if status in RETRYABLE:
            made[str(status)]["headers"] = {"Retry-After": RETRY_AFTER}
    return made


def _shown(content: dict[str, Any], topic: str) -> list[dict[str, Any]]:
    """Return the operations of one topic with what the page shows of them."""
    return [
        {"method": method.upper(), "path": path, "example": _example(described), **described}
        for path, methods in content["paths"].items()
        for method, described in methods.items()
        if topic in described["tags"]
    ]


def _example(operation: dict[str, Any]) -> str:
    """Return an example body, indented; empty where none is sent."""
    body = operation.get("requestBody", {"content": {}})["content"].get("application/json")
    if body is None:
        return ""
    example = body["example"]
    return msgspec.json.format(msgspec.json.encode(example), indent=2).decode()
