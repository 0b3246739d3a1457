"""GET /api/openapi.json and /api: what can programs ask of the bot? One document, for programs and as a page."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

import bot
from bot.web import openapi_doors, openapi_operator, openapi_reads, openapi_records, openapi_schemas
from bot.web.html import page, render
from bot.web.keys import CONTEXT

DOCUMENT: web.AppKey[dict[str, Any]] = web.AppKey("openapi", dict)

ABOUT = """\
Every door and every read. Pages for people are left out: each of them links its JSON.

A refusal is always `{"ok": false, "error": "<code>", "detail": "<what is wrong and what to do>"}`. Where it says
`Retry-After`, the same request may succeed after that many seconds. A method an address does not have is answered 405
with `method_not_allowed`, an unknown address 404 with `not_found`. 500 with `internal_error` is a bug of ours.

Times are written like `2026-01-31T12:00:00Z`, durations are seconds, rates go from 0 to 1."""
TAGS = {
    "Doors": "Where webhooks and reports come in.",
    "Results": "What the pages show.",
    "Records": "GitHub's objects, as we know them.",
    "Admin": "What is stuck, and how it goes on.",
    "Operation": "Does it run?",
}
WHO = {
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Hub-Signature-256",
        "description": "`sha256=` and the HMAC of the body's bytes with the webhook secret, in hexadecimal digits",
    },
    "backend": {
        "type": "http",
        "scheme": "bearer",
        "description": "an OpenID Connect token of the backend's CI, or a static key",
    },
    "relay": {
        "type": "apiKey",
        "in": "header",
        "name": "X-OOT-Relay-Token",
        "description": "the setting RELAY_TOKEN; without one the door is closed",
    },
    "admin": {
        "type": "http",
        "scheme": "bearer",
        "description": "the setting ADMIN_TOKEN; reads want it for what is private only",
    },
}


def document(url: str) -> dict[str, Any]:
    """Return the OpenAPI document of a bot at this address."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ootbot",
            "version": bot.__version__,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": openapi_doors.paths()
        | openapi_reads.paths()
        | openapi_records.paths()
        | openapi_operator.paths(),
        "components": {"securitySchemes": WHO, "schemas": openapi_schemas.components()},
    }


async def as_json(request: web.Request) -> web.Response:
    """Answer with the document."""
    body = msgspec.json.encode(request.app[DOCUMENT])
    return web.Response(body=body, content_type="application/json")


@page
async def as_page(request: web.Request) -> web.Response:
    """Show every door of the document, by topic."""
    said = request.app[DOCUMENT]
    return render(
        request,
        "api.html",
        about=said["info"]["description"],
        topics=[(tag, _doors(said, tag["name"])) for tag in said["tags"]],
        schemes=said["components"]["securitySchemes"],
        json_url="/api/openapi.json",
    )


def setup(app: web.Application) -> None:
    """Add the document, made once, and the two addresses it is read at."""
    app[DOCUMENT] = document(app[CONTEXT].settings.url)
    app.add_routes(routes)


def _doors(said: dict[str, Any], topic: str) -> list[dict[str, Any]]:
    """Return the operations of one topic with what the page shows of them."""
    return [
        {"method": method.upper(), "path": path, "example": _example(door), **door}
        for path, methods in said["paths"].items()
        for method, door in methods.items()
        if topic in door["tags"]
    ]


def _example(door: dict[str, Any]) -> str:
    """Return a body one may send, written for people; empty where none is sent."""
    if "requestBody" not in door:
        return ""
    example = door["requestBody"]["content"]["application/json"]["example"]
    return msgspec.json.format(msgspec.json.encode(example), indent=2).decode()


routes: list[web.RouteDef] = [
    web.get("/api/openapi.json", as_json),
    web.get("/api", as_page),
]
