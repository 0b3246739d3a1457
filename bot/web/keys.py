"""Where does a request handler find the running bot? The one key under which aiohttp's app holds it."""

from __future__ import annotations

from aiohttp import web

from bot.context import Context

CONTEXT: web.AppKey[Context] = web.AppKey("context", Context)
