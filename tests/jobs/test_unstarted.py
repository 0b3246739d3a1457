"""Runs that GitHub could not start: they have no jobs, so nothing else shows them."""

from __future__ import annotations

import pytest

from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push, run
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import failures, page_text
from tests.serving import SQLITE

FILE = ".github/workflows/pull.yml"
SAYS_WHY = f"no job of {FILE} was started; only the run's page on GitHub says why"


def unstarted(bot, commit, *, number=77, conclusion="startup_failure", name="pull"):
    """A run that ended without a job, as GitHub tells of it."""
    event, body = run(bot, commit, number=number, conclusion=conclusion, name=name)
    url = f"https://github.com/{UPSTREAM}/actions/runs/{number}"
    body["workflow_run"] |= {"path": FILE, "html_url": url, "display_title": "Change A"}
    return event, body


async def shown(bot):
    """The columns with the newest commit's cells."""
    body = (await bot.get(API))[1]
    return {one["name"]: body["lines"][0]["cells"].get(str(at)) for at, one in enumerate(body["columns"])}


@pytest.mark.logic
async def test_a_cell_says_that_nothing_was_started_and_where_the_reason_is(bot):
    await deliver(bot, push(bot, "A"), unstarted(bot, "A"))
    assert await shown(bot) == {"pull / (did not start)": {"c": "X", "line": f"startup failure: {SAYS_WHY}"}}
    page = (await bot.get(HUD))[1]
    key = page.partition('data-key="')[2].partition('"')[0]
    opened = (await bot.get(f"{HUD}?cell={COMMITS['A'][:12]}.{key}"))[1]
    assert f'href="/{UPSTREAM}/run/77"' in opened
    assert f'href="{bot.github.url}/{UPSTREAM}/actions/runs/77"' in opened
    assert SAYS_WHY.replace("'", "&#39;") in opened


@SQLITE
async def test_a_workflow_file_that_github_cannot_read_ends_as_a_failure_without_jobs(bot):
    await deliver(bot, push(bot, "A"), unstarted(bot, "A", conclusion="failure", name=FILE))
    name = f"{FILE} / (did not start)"
    assert await shown(bot) == {name: {"c": "X", "line": f"failure: {SAYS_WHY}"}}
    await bot.settle(60)  # once the cells of the commit are stored
    assert list(await shown(bot)) == [name]


@SQLITE
async def test_a_workflow_without_a_name_whose_job_failed_was_started(bot):
    await deliver(bot, push(bot, "A"), unstarted(bot, "A", conclusion="failure", name=FILE),
               job(bot, "build", "A", "failure", workflow=FILE))  # fmt: skip
    assert list(await shown(bot)) == [f"{FILE} / build"]
    await bot.settle(60)
    assert list(await shown(bot)) == [f"{FILE} / build"]


@SQLITE
async def test_the_pages_of_the_run_and_the_commit_say_so_too(bot):
    await deliver(bot, push(bot, "A"), unstarted(bot, "A"))
    assert SAYS_WHY in await page_text(bot, f"/{UPSTREAM}/run/77")
    assert f"startup failure: {SAYS_WHY}" in await page_text(bot, f"/{UPSTREAM}/commit/{COMMITS['A']}")


@SQLITE
async def test_the_page_of_a_pull_request_says_so_too(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await deliver(bot, push(bot, "A"), unstarted(bot, pull.head_sha))
    (row,) = failures((await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1])
    assert row[0] == f"pull / (did not start) failed startup failure: {SAYS_WHY} · its runs"
    assert row[2:] == ["no baseline yet no result on main is known", "upstream"]


@SQLITE
async def test_a_hostile_path_is_inert(bot):
    event, body = unstarted(bot, "A")
    body["workflow_run"] |= {"path": "<script>x</script>" + "p" * 1_000, "html_url": "javascript:x"}
    await deliver(bot, push(bot, "A"), (event, body))
    page = (await bot.get(HUD))[1]
    assert "<script>x" not in page
    assert "javascript:x" not in page
    assert len((await shown(bot))["pull / (did not start)"]["line"]) < 300
