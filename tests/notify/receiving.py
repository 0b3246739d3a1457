"""A receiver of webhooks on loopback that answers as a test says; and what happens to backends."""

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
from tests.harness import L3, UPSTREAM

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()
LATER = 30 * 3_600  # seconds: another day, and not yet silent


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


async def run_once(bot, conclusion, backend=L3, run_id="1"):
    """A pull request whose job on a backend ends so."""
    await bot.github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    dispatch = bot.dispatch(backend)
    for status, ends in (("in_progress", None), ("completed", conclusion)):
        answer, _ = await bot.report(dispatch, status=status, conclusion=ends, run_id=run_id)
        assert answer == 200
    await bot.settle()


async def turn_red(bot, backend=L3):
    """Green, then the day after only failures."""
    for number in range(3):
        await run_once(bot, "success", backend, run_id=f"10{number}")
    bot.clock.advance(LATER)
    await run_once(bot, "failure", backend, run_id="200")


async def recover(bot, backend=L3):
    """The day after nothing but passes."""
    bot.clock.advance(LATER)
    for number in range(3):
        await run_once(bot, "success", backend, run_id=f"30{number}")
