"""The grid up to a day, which points of charts lead to."""

from __future__ import annotations

import pytest

from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import page_text
from tests.serving import SQLITE
from tests.sums import count_changed

DAY = 24 * 60  # minutes; the first commit is of 2026-09-21


async def three_days(bot):
    await deliver(
        bot,
        *(push(bot, name, parent=before, at=at * DAY) for at, (before, name) in enumerate(((None, "A"), ("A", "B"), ("B", "C")))),
        *(job(bot, "lint", name) for name in "ABC"),
    )  # fmt: skip
    bot.clock.advance(3 * DAY * 60)


async def commits(bot, query):
    return [line["sha"] for line in (await bot.get(f"{API}{query}"))[1]["lines"]]


@pytest.mark.logic
async def test_commits_up_to_the_end_of_a_day(bot):
    await three_days(bot)
    assert await commits(bot, "?on=2026-09-22") == [COMMITS["B"], COMMITS["A"]]
    assert await commits(bot, "?on=2026-09-21") == [COMMITS["A"]]
    assert await commits(bot, "?on=2026-09-20") == []
    assert await commits(bot, f"?on=2026-09-22&before={COMMITS['B']}") == [COMMITS["A"]]
    text = await page_text(bot, f"{HUD}?on=2026-09-22")
    assert "Commits up to the end of 2026-09-22 (UTC). The newest ones" in text
    assert "main is green since aa00000" in text  # of the newest ones
    async with bot.http.get(f"{bot.url}/hud/{UPSTREAM}?on=2026-09-22", allow_redirects=False) as answer:
        assert answer.headers["Location"] == f"{HUD}?on=2026-09-22"


@SQLITE
async def test_points_of_the_charts_lead_there(bot):
    await three_days(bot)
    await count_changed(bot.context)
    page = (await bot.get(f"/{UPSTREAM}/metrics?days=7"))[1]
    assert f'<a href="{HUD}?on=2026-09-22" tabindex=-1><circle' in page
    assert f'<th scope=row><a href="{HUD}?on=2026-09-22">2026-09-22</a>' in page


@SQLITE
@pytest.mark.parametrize(
    "day", ["yesterday", "2026-9-2", "2026-02-30", "1969-12-31", "20260922", "2026-09-22T00:00", "٢٠٢٦-٠٩-٢٢"]
)
async def test_what_is_no_day_is_refused_with_an_example(bot, day):
    await three_days(bot)
    for path in (HUD, API):
        status, answer = await bot.get(path, params={"on": day})
        assert status == 400
        assert "on must be a day since 1970, as in 2026-11-25" in str(answer)
