"""aiohttp's application, before any part adds its routes: what every request needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.web.app_keys import BODY_SECONDS, CONTEXT
from bot.web.bodies import BODY_CAPACITIES, BodyCapacities
from bot.web.log_limiter import LOG_LIMITER, LogLimiter
from bot.web.middleware import guard
from bot.web.refusal_limiter import IGNORED_LIMITER, IGNORED_MOST, REFUSAL_LIMITER, RefusalLimiter

if TYPE_CHECKING:
    from bot.context import Context


def make_app(
    context: Context, *, body_seconds: float, body_capacities: BodyCapacities | None = None
) -> web.Application:
    """Return an application without routes; a body that takes longer than `body_seconds` is cut off."""
    app = web.Application(middlewares=[guard])
    app[CONTEXT] = context
    app[BODY_SECONDS] = body_seconds
    app[BODY_CAPACITIES] = body_capacities or BodyCapacities()
    app[LOG_LIMITER] = LogLimiter(context.clock)
    app[REFUSAL_LIMITER] = RefusalLimiter(
        context.clock, most=context.settings.refused_per_min, proxies=context.settings.trusted_proxies
    )
    app[IGNORED_LIMITER] = RefusalLimiter(
        context.clock, most=IGNORED_MOST, proxies=context.settings.trusted_proxies
    )
    return app
