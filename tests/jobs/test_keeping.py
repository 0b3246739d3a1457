"""How long the grid is kept, and that replaying deliveries makes it again."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from tests.command import ootbot
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push, run
from tests.jobs.test_hud import API, example

DAY = 86_400  # seconds
MINUTES = 24 * 60
KEPT = ("ci_cell", "branch_commit", "ci_day", "ci_line", "ci_runner_day", "trunk_event")


async def counts(bot):
    return {table: len(await bot.rows(table)) for table in KEPT}


async def later(bot, days):
    bot.clock.advance(days * DAY)
    await bot.wait(60)


@pytest.mark.logic
async def test_the_grid_is_kept_as_long_as_records_are(bot):
    await deliver(bot, *example(bot), push(bot, "E", parent="D", at=40), run(bot, "A", conclusion="failure"),
               job(bot, "linux / test (default, 1, 2, linux.4xlarge)", "E", "failure", number=61, at=40))  # fmt: skip
    await bot.wait(60)
    assert all((await counts(bot)).values())
    await later(bot, 399)
    before = await counts(bot)
    assert all(before.values())
    young = "f" * 40
    at = 399 * MINUTES
    await deliver(bot, push(bot, young, parent="E", at=at), job(bot, "build", young, number=99, at=at))
    await later(bot, 2)
    assert {row["sha"] for row in await bot.rows("branch_commit")} == {young}
    assert {row["job_id"] for row in await bot.rows("ci_cell")} == {99}
    assert {row["sha"] for row in await bot.rows("ci_line")} == {young}
    assert {row["name"] for row in await bot.rows("ci_day")} == {"pull / build"}
    assert len(await bot.rows("ci_runner_day")) == 1
    assert await bot.rows("trunk_event") == []
    assert {row["head_sha"] for row in await bot.rows("ci_commit")} == {young}
    assert [line["sha"] for line in (await bot.get(API))[1]["lines"]] == [young]
    await later(bot, 7)
    assert {row["job"] for row in await bot.rows("ci_column")} == {"build"}


@pytest.mark.logic
async def test_a_cell_without_any_time_goes_with_its_record(bot):
    event, body = job(bot, "build", "A", number=7)
    body["workflow_job"] |= {"created_at": None, "started_at": None, "completed_at": None}
    await deliver(bot, push(bot, "A"), (event, body))
    await later(bot, 300)
    assert [row["job_id"] for row in await bot.rows("ci_cell")] == [7]
    await later(bot, 102)
    await later(bot, 2)  # records first, then what follows them
    assert await bot.rows("ci_cell") == []


async def test_replaying_the_deliveries_makes_cells_and_commits_again(bot):
    await deliver(bot, *example(bot))
    expected = (await bot.get(API))[1]
    async with bot.store.transaction() as tx:
        for table in ("ci_cell", "ci_column", "branch_commit"):
            await tx.run(sa.delete(metadata.tables[table]))
    assert (await bot.get(API))[1]["lines"] == []
    code, _, err = await ootbot(bot, "replay", "--repo", UPSTREAM)
    assert code == 0, err
    assert (await bot.get(API))[1] == expected
    assert {row["sha"] for row in await bot.rows("branch_commit")} == {COMMITS[name] for name in "ABCD"}
