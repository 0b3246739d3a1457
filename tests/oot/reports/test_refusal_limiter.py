"""Refusals are counted by the client's own address, whatever it claims and whatever proxy stands before the bot."""

from __future__ import annotations

from bot.app import make_app
from bot.core import setting_types
from tests.harness import L4, replace, report_body
from tests.oot.reports.reporting import SUITE, post, token_of
from tests.serving import SQLITE, serving


async def asks(bot, **headers):
    """How a stranger's three calls are answered, of which two are allowed a minute."""
    body = report_body(bot.dispatch(L4), **SUITE)
    return [(await post(bot, body, token_of(bot, "stranger/repo"), **headers))[0] for _ in range(3)]


@SQLITE
async def test_callers_behind_our_own_proxy_do_not_share_one_count(bot, pull):
    few = replace(bot.context.settings, refused_per_min=2)
    for proxies, second in (((), [429, 429, 429]), (setting_types.networks("127.0.0.1"), [403, 403, 429])):
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
