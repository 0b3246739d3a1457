"""Which address is answered by whom?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.web import admin, api, callback, openapi, operator, pages, results, webhooks
from bot.web.keys import BODY_SECONDS, CONTEXT
from bot.web.limits import ROOM, Room
from bot.web.middleware import guard
from bot.web.refusals import REFUSALS, Refusals
from bot.web.remarks import REMARKS, Remarks
from bot.web.taking import TAKING, Taking

if TYPE_CHECKING:
    from bot.context import Context


def make_app(context: Context, *, body_seconds: float = 10.0, room: Room | None = None) -> web.Application:
    """Return aiohttp's application with the doors and pages of this process's role.

    A body that takes longer than `body_seconds` is cut off.
    """
    app = web.Application(middlewares=[guard])
    app[CONTEXT] = context
    app[BODY_SECONDS] = body_seconds
    app[ROOM] = room or Room()
    app[TAKING] = Taking(context)
    app[REMARKS] = Remarks(context.clock)
    app[REFUSALS] = Refusals(
        context.clock, most=context.settings.refused_per_min, proxies=context.settings.trusted_proxies
    )
    app.add_routes(operator.routes)
    if context.settings.role != "worker":
        _add_doors(app)
    return app


def _add_doors(app: web.Application) -> None:
    app.add_routes(
        [
            web.post("/api/github/webhooks", webhooks.receive),
            web.post("/api/oot/callback", callback.receive),
            web.post("/github/callback", callback.receive),
            web.post("/api/oot/callback/batch", callback.receive_batch),
            web.post("/api/oot/results", results.receive),
        ]
    )
    app.add_routes(api.routes)
    app.add_routes(admin.routes)
    pages.setup(app)
    openapi.setup(app)
