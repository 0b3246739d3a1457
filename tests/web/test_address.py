"""Whom do refusals count against? The caller's own address, whatever it says and whoever stands before us."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from bot import parse
from bot.web.address import caller
from bot.web.routes import make_app
from tests.harness import L4, replace, report_body
from tests.serving import SQLITE, serving
from tests.web.reporting import SUITE, post, token_of

PROXIES = parse.networks("10.0.0.0/8, fd00::/8")
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
    assert caller(request, PROXIES) == expected


async def asks(bot, **headers):
    """How a stranger's three calls are answered, of which two are allowed a minute."""
    body = report_body(bot.dispatch(L4), **SUITE)
    return [(await post(bot, body, token_of(bot, "stranger/repo"), **headers))[0] for _ in range(3)]


@SQLITE
async def test_callers_behind_our_own_proxy_do_not_share_one_count(bot, pull):
    few = replace(bot.context.settings, refused_per_min=2)
    for proxies, second in (((), [429, 429, 429]), (parse.networks("127.0.0.1"), [403, 403, 429])):
        settings = replace(few, trusted_proxies=proxies)
        async with serving(bot, make_app(replace(bot.context, settings=settings))) as served:
            assert await asks(served, **{"X-Forwarded-For": "198.51.100.7"}) == [403, 403, 429]
            assert await asks(served, **{"X-Forwarded-For": "198.51.100.8"}) == second


@SQLITE
async def test_strangers_that_are_ignored_kindly_have_a_limit_too(bot, pull):
    settings = replace(bot.context.settings, refused_per_min=2, unlisted="ignore")
    async with serving(bot, make_app(replace(bot.context, settings=settings))) as served:
        assert await asks(served) == [200, 200, 429]
        bot.clock.advance(61)
        assert (await asks(served))[0] == 200
        assert (await served.report(bot.dispatch(L4)))[0] == 200
