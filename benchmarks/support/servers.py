"""What `ootbot serve` is compared with: itself without a store or without cells, and a bare gidgethub bot.

Started as `servers.py NAME PORT FOLDER`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from aiohttp import web
from gidgethub import sansio

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.support.load import SECRET
from bot.app import make_app, make_context, make_worker
from bot.core import log_output
from bot.core.settings import Settings
from bot.demo.github.auth import private_key
from bot.features import FEATURES
from bot.ingest import webhooks
from bot.ingest.webhooks import make_receiver
from bot.serving import answering_requests
from bot.web import server
from bot.web.connections import ConnectionLimits

if TYPE_CHECKING:
    from bot.ingest.inbox import Incoming


def settings(folder: str, port: int, database_url: str | None) -> Settings:
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    allowlist = path / "allowlist.yml"
    allowlist.write_text("L1: []\n")
    return Settings(
        app_id=1, webhook_secret=(SECRET,), private_key=private_key(), upstream_repo=("org/upstream",),
        github_api_url="http://127.0.0.1:9", allowlist=str(allowlist), data_dir=path, database_url=database_url,
        port=port,
    )  # fmt: skip


class Nowhere:
    """Takes deliveries and stores none."""

    def put(self, _incoming: Incoming) -> asyncio.Future[bool]:
        stored = asyncio.get_running_loop().create_future()
        stored.set_result(True)
        return stored


async def gidgethub_bot(request: web.Request) -> web.Response:
    """What a bot written after gidgethub's own documentation does, with an empty handler."""
    body = await request.read()
    sansio.Event.from_http(request.headers, body, secret=SECRET)
    return web.Response(status=200)


async def serve_plainly(app: web.Application, port: int) -> None:
    """Serve as aiohttp's documentation shows it."""
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=75)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


async def serve(app: web.Application, port: int) -> None:
    """Serve as the bot does."""
    async with answering_requests(
        app, socket.create_server(("127.0.0.1", port), backlog=1024), ConnectionLimits()
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def main(name: str, port: int, folder: str, database_url: str | None) -> None:
    if name == "gidgethub":
        app = web.Application(client_max_size=25 * 1024 * 1024)
        app.add_routes([web.post("/api/github/webhooks", gidgethub_bot)])
        await serve_plainly(app, port)
    features = FEATURES
    if name == "no_cells":  # what a repository's own CI costs beside its records
        features = tuple(replace(one, before_commit="") if one.name == "trunk" else one for one in FEATURES)
    async with make_context(settings(folder, port, database_url), features=features) as context:
        if name == "verify":
            app = server.make_app(replace(context, intake=Nowhere()), body_seconds=10.0)
            app.add_routes([web.post("/api/github/webhooks", make_receiver(webhooks.GITHUB_SENDER))])
            await serve(app, port)
        working = []
        if name in {"all", "no_cells", "unpinned_worker"}:
            working.append(asyncio.create_task(make_worker(context).run()))
        await serve(make_app(context), port)


if __name__ == "__main__":
    log_output.configure(fmt="json", level="warning")
    arguments = [*sys.argv[1:], None]
    uvloop.run(main(arguments[0], int(arguments[1]), arguments[2], arguments[3]))
