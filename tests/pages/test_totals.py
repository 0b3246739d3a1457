"""Numbers on pages equal the sums of the rows, at any time while rows come, change and age."""

import random
import re
from dataclasses import asdict

import pytest
import sqlalchemy as sa

from bot.core.text import percent
from bot.oot.results.tables import oot_dispatch, oot_workflow_job
from bot.oot.statistics import stats
from bot.oot.statistics.stats import DAY, tally_rows
from tests import by_hand
from tests.harness import L2, L3, L4
from tests.pages.page_checks import add_job, page_text
from tests.sums import count_changed

WINDOWS = (1, 2, 7, 30)
CONCLUSIONS = ("success", "success", "failure", "timed_out", "cancelled")


async def naive(bot, days):
    """Every backend's numbers of a window, from all rows there are."""
    now = bot.clock.now()
    since = now - DAY if days == 1 else (now - days * DAY) // DAY * DAY
    async with bot.store.read() as tx:
        rows = await tx.rows(sa.select(oot_workflow_job))
        asked = await tx.rows(sa.select(oot_dispatch))
    found = {}
    for backend in {row["downstream_repo"].casefold() for row in rows}:
        mine = [row for row in rows if row["downstream_repo"].casefold() == backend]
        told = [row for row in asked if row["backend_key"] == backend]
        heard, ended = by_hand.counted(mine, told)
        heard = [row for row in heard if row["received_at"] >= since]
        ended = [row for row in ended if row["created_at"] >= since]
        found[backend] = asdict(stats.measure_backend(tally_rows(heard, ended)))
        found[backend].pop("last_at")
    return found


async def agree(bot, chance):
    for days in WINDOWS:
        wanted = await naive(bot, days)
        _, body = await bot.get(f"/api/oot/summary?days={days}")
        shown = {one["repo"].casefold(): one for one in body["backends"]}
        for backend, numbers in wanted.items():
            if backend in shown:
                assert {name: shown[backend][name] for name in numbers} == numbers, (backend, days)
            else:
                assert not numbers["runs"], (backend, days)
        _, body = await bot.get(f"/api/oot/backends/{L4}?days={days}")
        if L4 in wanted:
            assert {name: body["backend"][name] for name in wanted[L4]} == wanted[L4], days
    days = chance.choice(WINDOWS[1:])  # days of the charts are whole ones
    await pages_agree(bot, await naive(bot, days), days)
    month = await naive(bot, 30)
    for one in (await bot.get("/api/oot/levels"))[1]["backends"]:
        (measure,) = (measure for measure in one["measures"] if measure["name"] == "pass rate")
        assert measure["value"] == month.get(one["repo"], {}).get("pass_rate")


async def pages_agree(bot, wanted, days):
    """The same in what people read, and in the charts' days taken together."""
    shown = rows_of((await bot.get(f"/oot?days={days}"))[1])
    _, body = await bot.get(f"/api/oot/metrics?days={days}")
    for backend, numbers in wanted.items():
        counts = [numbers[name] for name in ("runs", "failure", "timed_out", "never_started")]
        assert shown.get(backend, [0, 0, 0, 0]) == counts
        rated = sum(counts[1:]) + numbers["success"]
        if rated:
            mine = [row for row in body["rows"] if row["repo"].casefold() == backend]
            assert [sum(row[name] for row in mine) for name in ("runs", "failed")] == [
                counts[0],
                sum(counts[1:]),
            ]
            text = await page_text(bot, f"/oot/{backend}?days={days}")
            assert f"{percent(numbers['pass_rate'])} {numbers['success']} of {rated} that count" in text


def rows_of(page):
    """The health page's runs, failed, timed out and never started by backend."""
    found = {}
    for row in page.split('<tr><th scope="row">')[1:]:
        if "receives events, reports nothing" in row:
            continue
        cells = [re.sub(r"<[^>]+>", "", f"<td{cell}").strip() for cell in row.split("<td")[1:]]
        found[re.search(r'href="/oot/([^?"]+)', row)[1].casefold()] = [int(cell) for cell in cells[2:6]]
    return found


@pytest.mark.logic
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
async def test_numbers_shown_again_are_those_of_the_rows_there_are_now(bot, seed):
    chance = random.Random(seed)
    for step in range(25):
        bot.clock.advance(chance.choice([60, 3_600, 30_000, 90_000]))
        conclusion = chance.choice(CONCLUSIONS)
        await add_job(
            bot, downstream_repo=chance.choice([L2, L3, L4, L4.upper(), "org/unlisted"]), conclusion=conclusion,
            job_name=chance.choice(["build", "test"]), run_id=str(chance.randint(1, 6)), run_attempt=step + 1,
            execution_time=chance.uniform(1, 20_000), queue_time=chance.choice([None, 5.0, 700.0]),
            downstream_repo_level=chance.choice([2, 3]),
        )  # fmt: skip
        if chance.random() < 0.4:
            await count_changed(bot.context)
        if chance.random() < 0.6:
            await agree(bot, chance)
    await count_changed(bot.context)
    await agree(bot, chance)
    bot.clock.advance(86_400)
    await agree(bot, chance)
