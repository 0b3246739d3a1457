"""Keys of the aiohttp application under which request handlers find the running bot."""

from __future__ import annotations

from aiohttp import web

from bot.context import Context

CONTEXT: web.AppKey[Context] = web.AppKey("context", Context)
BODY_SECONDS: web.AppKey[float] = web.AppKey("body_seconds", float)  # what a body may take to arrive
