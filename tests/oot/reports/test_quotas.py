"""How much one backend may report, and how often one address may be refused."""

import pytest

from bot.app import make_app
from bot.core import setting_types
from tests.harness import L2, L3, L4, UPSTREAM, replace, report_body
from tests.oot.reports.reporting import SUITE, post, token_of
from tests.serving import SQLITE, serving

TESTS = [
    {"name": f"test_{number}", "message": "m" * 1_000, "stacktrace": "s" * 4_000} for number in range(60)
]


@pytest.fixture
def settings(settings):
    """The settings of a bot that takes 1 MB of failed tests an hour from each backend."""
    return replace(settings, report_mb_per_hour=1)


@SQLITE
async def test_a_backend_fills_no_more_than_its_share_of_the_database(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()

    async def report(backend, job, **more):
        return await bot.report(
            bot.dispatch(backend), job=job, conclusion="failure", failed_tests=TESTS, **more
        )

    answers = [await report(L2, f"job {number}") for number in range(5)]
    assert [status for status, _ in answers] == [200, 200, 200, 429, 429]  # 300 kB each
    assert answers[3][1]["error"] == "rate_limited"
    assert "1 MB of failed tests an hour" in answers[3][1]["detail"]
    # what failed is no reason to refuse the rest
    assert (await bot.report(bot.dispatch(L2), job="small"))[0] == 200
    assert (await report(L3, "job"))[0] == 200
    bot.clock.advance(3601)
    assert (await report(L2, "job 4"))[0] == 200


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
