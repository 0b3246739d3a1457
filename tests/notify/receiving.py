"""A receiver of webhooks on loopback: it keeps what it got, and answers as a test says."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from dataclasses import dataclass, field, replace

from aiohttp import web

from bot.notify.receivers import NotifySettings, Receiver

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@dataclass
class Inbox:
    """What arrived, and what is answered: (status, headers), or "hang"; 204 where nothing is said."""

    url: str = ""
    answers: list = field(default_factory=list)
    got: list = field(default_factory=list)  # (headers, body)

    async def take(self, request):
        self.got.append((request.headers.copy(), await request.read()))
        answer = self.answers.pop(0) if self.answers else (204, {})
        if answer == "hang":
            await asyncio.sleep(3600)
        status, headers = answer
        return web.Response(status=status, headers=headers)

    @property
    def notices(self):
        """The bodies as JSON."""
        return [json.loads(body) for _, body in self.got]

    @property
    def told(self):
        """What happened, in order."""
        return [one["type"] for one in self.notices]

    def receiver(self, **options):
        """This receiver in the settings."""
        given = {"name": "team", "url": f"{self.url}/hook", "secret": SECRET, "internal": True}
        return Receiver(**(given | options))


@contextlib.asynccontextmanager
async def receiving():
    """Run a receiver."""
    inbox = Inbox()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", inbox.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    inbox.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield inbox
    finally:
        await runner.cleanup()


def verify(headers, body, key=KEY):
    """Whether a signature is right, as Standard Webhooks says."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in headers["webhook-signature"].split(" ")


def telling(settings, *receivers, **options):
    """Settings with these receivers."""
    chosen = NotifySettings(notify=receivers, **options)
    return replace(settings, of_features={**settings.of_features, NotifySettings: chosen})


async def check(bot):
    """Have the bot look at what holds, and send what is to be sent."""
    async with bot.store.transaction() as tx:
        tx.enqueue("notices", "")
    await bot.settle()
