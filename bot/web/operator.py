"""/healthz, /readyz, /metrics: does it run, can it work, what does it count?"""

from __future__ import annotations

import prometheus_client
from aiohttp import web

from bot.errors import StoreUnavailable
from bot.store import allowlists
from bot.web.keys import CONTEXT


async def healthz(_request: web.Request) -> web.Response:
    """The process answers."""
    return web.json_response({"ok": True})


async def readyz(request: web.Request) -> web.Response:
    """Work can be done: 503 names what is missing."""
    context = request.app[CONTEXT]
    missing, notes = [], []
    try:
        async with context.store.read() as tx:
            version = await allowlists.in_force(tx)
            newest = await allowlists.newest(tx)
    except StoreUnavailable as error:
        missing.append(f"database: {error}"[:300])
    else:
        if version is None:
            why = newest["error"] if newest else "not read yet"
            missing.append(f"allowlist: no valid version of {context.settings.allowlist}: {why}")
        elif newest and not newest["valid"]:
            notes.append(
                f"allowlist: the last good version is in force, the newest is wrong: {newest['error']}"
            )
    body = {"ok": not missing, "missing": missing, "notes": notes}
    return web.json_response(body, status=503 if missing else 200)


async def metrics(_request: web.Request) -> web.Response:
    """Prometheus text."""
    return web.Response(
        body=prometheus_client.generate_latest(),
        headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
    )
