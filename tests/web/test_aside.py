"""Are deliveries taken at once while pages are being made?"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time

from aiohttp import ClientError

from bot.web.routes import make_app
from tests.harness import UPSTREAM
from tests.serving import serving

BACKENDS = 400
SECONDS = 2.0


async def test_a_delivery_does_not_wait_for_pages(bot, tmp_path):
    listed = "".join(f"  - org/backend-{number}\n" for number in range(BACKENDS))
    (tmp_path / "allowlist.yml").write_text(f"L2:\n{listed}")
    await bot.wait(600)
    until = time.monotonic() + SECONDS

    async def timed(asked, pause=0.0):
        took = []
        while time.monotonic() < until:
            began = time.monotonic()
            status = (await asked())[0]
            took.append(time.monotonic() - began)
            assert status in {200, 202}
            await asyncio.sleep(pause)
        return took

    def page():
        return bot.get("/oot/levels")

    def delivery():
        return bot.send("issues", {"action": "opened", "repository": {"id": 1, "full_name": UPSTREAM}})

    first, second, deliveries = await asyncio.gather(timed(page), timed(page), timed(delivery, 0.03))
    assert statistics.median(deliveries) < statistics.median(first + second) / 3


async def test_pages_in_the_making_end_with_the_bot(bot):
    async with serving(bot, make_app(bot.context)) as seen:
        asked = [asyncio.create_task(seen.get("/oot/levels")) for _ in range(20)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert "pages" in names_of_threads()
    assert "pages" not in names_of_threads()
    assert all(
        isinstance(end, tuple | OSError | ClientError)
        for end in await asyncio.gather(*asked, return_exceptions=True)
    )


def names_of_threads():
    return [one.name for one in threading.enumerate()]
