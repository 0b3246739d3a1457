"""Cells that are stored by commit: nobody sees a difference, and what changes is shown at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs import job_cells
from bot.jobs.settings import TrunkSettings
from tests.jobs.branch import COMMITS, deliver, job, push, run
from tests.jobs.test_hud import API, HUD, TEST, example, shown, text_of
from tests.serving import SQLITE


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
