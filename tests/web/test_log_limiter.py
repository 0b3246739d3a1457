"""What do strangers leave in the log? A few lines a minute, with the address of the peer or of what a proxy forwarded."""

import asyncio
import contextlib

import aiohttp
import pytest
import structlog
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from bot.core import setting_types
from bot.web.limits import client_ip
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


PROXIES = setting_types.networks("10.0.0.0/8, fd00::/8")
CALLERS = {
    "nobody between": ("198.51.100.7", [], "198.51.100.7"),
    "a header of its own making": ("198.51.100.7", ["192.0.2.1"], "198.51.100.7"),
    "one proxy": ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
    "two proxies": ("10.0.0.1", ["198.51.100.7, 10.2.3.4"], "198.51.100.7"),
    "two headers": ("10.0.0.1", ["192.0.2.1", "198.51.100.7"], "198.51.100.7"),
    "lies before the proxy's word": ("10.0.0.1", ["10.0.0.2, 192.0.2.1, 198.51.100.7"], "198.51.100.7"),
    "a proxy that says nothing": ("10.0.0.1", [], "10.0.0.1"),
    "a proxy that says nonsense": ("10.0.0.1", ["unknown"], "10.0.0.1"),
    "an address with a port": ("10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7"),
    "IPv6": ("2001:db8:1:2:3:4:5:6", [], "2001:db8:1:2::/64"),
    "IPv6 behind a proxy, with a port": ("fd00::1", ["[2001:db8:1:2::9]:4711"], "2001:db8:1:2::/64"),
    "IPv4 in IPv6": ("::ffff:198.51.100.7", [], "198.51.100.7"),
    "a proxy as IPv4 in IPv6": ("::ffff:10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
}


@pytest.mark.parametrize(("peer", "forwarded", "expected"), CALLERS.values(), ids=CALLERS)
def test_the_caller_is_who_the_last_trusted_proxy_heard_from(peer, forwarded, expected):
    headers = [("X-Forwarded-For", one) for one in forwarded]
    request = make_mocked_request("POST", "/", headers=CIMultiDict(headers)).clone(remote=peer)
    assert client_ip(request, PROXIES) == expected
