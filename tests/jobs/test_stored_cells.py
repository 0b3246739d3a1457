"""Cells that are stored by commit: nobody sees a difference, and what changes is shown at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from bot.jobs import job_cells
from bot.jobs.settings import TrunkSettings
from tests.command import ootbot
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push, run
from tests.jobs.test_hud import API, HUD, TEST, example, shown, text_of
from tests.serving import SQLITE

DAY = 86_400  # seconds
MINUTES = 24 * 60
KEPT = ("ci_cell", "branch_commit", "ci_day", "ci_line", "ci_runner_day", "trunk_event")


async def stored(bot):
    """The commits that have stored cells."""
    await bot.wait(60)
    return {row["head_sha"] for row in await bot.rows("ci_commit") if row["cells"] is not None}


async def characters(bot):
    return [cell and cell["c"] for cell in shown((await bot.get(API))[1])]


@pytest.mark.logic
async def test_stored_cells_are_what_was_shown_before_and_give_way_to_what_changes(bot):
    await deliver(bot, *example(bot))
    expected = await text_of(bot)
    assert await stored(bot) == {COMMITS[name] for name in "ABCD"}
    assert await text_of(bot) == expected
    assert await characters(bot) == ["X", "X", "F", "O"]
    await deliver(
        bot, job(bot, TEST.format(1), "D", number=71, attempt=2), job(bot, TEST.format(2), "D", number=52)
    )
    assert await characters(bot) == ["F", "X", "F", "O"]
    expected = await text_of(bot)
    assert await stored(bot) == {COMMITS[name] for name in "ABCD"}
    assert await text_of(bot) == expected


@SQLITE
async def test_a_line_that_is_read_later_is_shown(bot):
    await deliver(bot, *example(bot))
    assert COMMITS["D"] in await stored(bot)
    (row,) = [row for row in await bot.rows("ci_cell") if row["job_id"] == 51]
    async with bot.store.transaction() as tx:
        await job_cells.write_line(tx, row["repository_id"], 51, kind="test", signature="ab", line="it broke")
    assert shown((await bot.get(API))[1])[0]["line"] == "it broke"


@SQLITE
async def test_a_run_that_turns_out_to_be_foreign_is_left_out(bot):
    await deliver(bot, push(bot, "A"), job(bot, "answer", "A", run=5))
    assert COMMITS["A"] in await stored(bot)
    assert await characters(bot) == ["O"]
    await deliver(bot, run(bot, "A", number=5, event="issue_comment"))
    assert (await bot.get(API))[1]["columns"] == []


@SQLITE
async def test_shards_and_the_runs_of_a_cell_are_read_singly(bot):
    await deliver(bot, *example(bot))
    await stored(bot)
    body = (await bot.get(f"{API}?shards=1"))[1]
    assert [column["name"] for column in body["columns"]] == [
        "pull / linux / test (default, 1, 2)", "pull / linux / test (default, 2, 2)"
    ]  # fmt: skip
    page = (await bot.get(HUD))[1]
    key = page.partition('data-key="')[2].partition('"')[0]
    opened = (await bot.get(f"{HUD}?cell={COMMITS['C'][:12]}.{key}"))[1]
    assert all(f"/job/{number}" in opened for number in (31, 32, 42))


@SQLITE
async def test_commits_whose_runs_never_started_count_as_broken(bot):
    await deliver(
        bot, *(push(bot, name, parent=parent) for parent, name in ((None, "A"), ("A", "B"), ("B", "C")))
    )
    await bot.wait(60)
    await deliver(
        bot,
        *(run(bot, name, number=number, conclusion="startup_failure") for number, name in enumerate("ABC")),
    )
    await bot.wait(60)
    assert {row["state_after"] for row in await bot.rows("trunk_event")} == {"suspect", "broken"}


class TestAliases:
    """Two names of one job, on the same commit."""

    @pytest.fixture
    def settings(self, settings):
        """The settings of a bot that knows a renamed job."""
        chosen = TrunkSettings(ci_aliases=((r"^pull / old", "pull / new"),))
        return replace(settings, of_features={**settings.of_features, TrunkSettings: chosen})

    @SQLITE
    async def test_runs_of_both_names_make_one_cell(self, bot):
        await deliver(bot, push(bot, "A"), push(bot, "B", parent="A"), job(bot, "old", "A"),
                   job(bot, "old", "B", "failure", number=5), job(bot, "new", "B", number=6))  # fmt: skip
        expected = await text_of(bot)
        assert await characters(bot) == ["F", "O"]
        assert await stored(bot) == {COMMITS["A"], COMMITS["B"]}
        assert await text_of(bot) == expected


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
