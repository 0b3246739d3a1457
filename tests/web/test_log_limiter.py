"""What do strangers leave in the log? A few lines a minute, and nothing that a terminal would obey."""

import asyncio
import contextlib

import aiohttp
import structlog

from tests.process import PATIENCE, Process, options_for
from tests.serving import SQLITE


async def refused(bot, times):
    """Be refused so often, in two ways; returns the lines logged from `info` on, by code."""
    with structlog.testing.capture_logs() as lines:
        for _ in range(times):
            assert (await bot.send("star", {}, secret="wrong"))[0] == 401
        assert (await bot.get("/api/records/issue/no/body/1"))[0] == 404
    said = [line for line in lines if line["event"] == "refused" and line["log_level"] == "info"]
    return [line for line in said if line["code"] == "invalid_signature"], [
        line for line in said if line["code"] == "not_found"
    ]


@SQLITE
async def test_strangers_cannot_fill_the_log(bot):
    unsigned, unknown = await refused(bot, 30)
    assert len(unsigned) == 10
    assert len(unknown) == 1  # other refusals are seen all the same
    unsigned, unknown = await refused(bot, 5)
    assert (unsigned, len(unknown)) == ([], 1)
    bot.clock.advance(60)
    (unsigned, _), _ = await refused(bot, 2)
    assert unsigned["not_logged_before"] == 25


async def test_a_path_is_logged_as_words_only(tmp_path, app_key):
    process = Process(tmp_path, **options_for(tmp_path, private_key=app_key), LOG_LEVEL="info")
    try:
        await asyncio.wait_for((await process.start()).wait(), PATIENCE)
        async with aiohttp.ClientSession() as http:
            for name in ("%1b]0;x%07", "%1b[31mred", "%E2%80%AEback", "%C2%9b2J"):
                async with http.get(f"{process.url}/api/records/{name}/a/b") as answer:
                    assert answer.status == 404
    finally:
        process.kill()
        with contextlib.suppress(ProcessLookupError):
            await process.ended()
    told = [line for line in process.said if "/api/records/" in line]
    assert len(told) == 4, process.said
    assert [line for line in told if not line.isprintable()] == []
    assert "/api/records/red/a/b" in told[1]
