"""What the grid marks beside results: flakes, jobs without news, and what started a run."""

from __future__ import annotations

import itertools

from bot.jobs import job_cells
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push, run
from tests.jobs.test_hud import API, HUD, shown
from tests.pages.page_checks import page_text
from tests.serving import SQLITE


async def history(bot, *conclusions, name="build"):
    """One job on the commits A, B, ... of a branch; None: it did not run."""
    names = "ABCDE"[: len(conclusions)]
    pushes = [push(bot, one, parent=parent, at=at * 10) for at, (parent, one)
              in enumerate(itertools.pairwise([None, *names]))]  # fmt: skip
    jobs = [job(bot, name, one, conclusion, at=at * 10)
            for at, (one, conclusion) in enumerate(zip(names, conclusions, strict=True)) if conclusion]  # fmt: skip
    await deliver(bot, *pushes, *jobs)


async def columns(bot):
    return {one["name"]: one["state"] for one in (await bot.get(API))[1]["columns"]}


@SQLITE
async def test_a_lone_failure_between_passes_is_marked_as_a_flake(bot):
    await history(bot, "success", "failure", "success", "failure")
    body = (await bot.get(API))[1]
    assert [cell.get("flake", False) for cell in shown(body)] == [False, False, True, False]
    page = (await bot.get(HUD))[1]
    assert page.count("<td class=l>") == 1
    assert "failure, but passed before and after" in page
    assert await columns(bot) == {"pull / build": "suspect"}


@SQLITE
async def test_a_job_without_a_result_on_the_newest_commits_is_not_called_green(bot):
    await history(bot, "success", None, None, None)
    assert await columns(bot) == {"pull / build": "unknown"}
    assert 'class="stale"' in (await bot.get(f"{HUD}?groups=0"))[1]
    await deliver(bot, job(bot, "build twice", "A"))
    assert "2 green, 2 without news" in await page_text(bot, HUD)


async def outage(bot, *workflows):
    """Ten jobs that fail on one commit; the words on its line, and how the first job's failure counts."""
    await deliver(bot, push(bot, "A"), *(job(bot, f"job {at}", "A", "failure", workflow=workflows[at % len(workflows)])
                                      for at in range(10)))  # fmt: skip
    await bot.wait(60)
    (one, *_) = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    return "many failed at once" in await page_text(bot, HUD), one["infra"], one["flaky"]


@SQLITE
async def test_jobs_of_different_workflows_that_fail_at_once_are_an_outage(bot):
    assert await outage(bot, "pull", "docs") == (True, 1, 0)


@SQLITE
async def test_one_workflow_of_which_all_jobs_fail_is_none(bot):
    assert await outage(bot, "pull") == (False, 0, 1)


@SQLITE
async def test_a_second_failure_for_another_reason_is_a_change_of_its_own(bot):
    await history(bot, "success", "failure", "failure")
    for row in await bot.rows("ci_cell"):
        if row["head_sha"] != COMMITS["A"]:
            async with bot.store.transaction() as tx:
                await job_cells.write_line(tx, row["repository_id"], row["job_id"], kind="test",
                                          signature=row["head_sha"][:2], line="it broke")  # fmt: skip
    await bot.wait(60)
    changes = (await bot.get(f"/api/ci/metrics/{UPSTREAM}"))[1]["changes"]
    assert [(one["before"], one["after"], one["first_bad"], one["last_good"]) for one in changes] == [
        ("suspect", "suspect", COMMITS["C"], COMMITS["A"]), ("ok", "suspect", COMMITS["B"], COMMITS["A"]),
    ]  # fmt: skip


@SQLITE
async def test_an_attempt_of_a_run_that_nobody_told_of_was_started_by_the_same_event(bot):
    """GitHub lists a run's last attempt only: this is how what was before the App is read."""
    await history(bot, "failure")
    again = run(bot, "A", attempt=2)
    again[1]["workflow_run"]["triggering_actor"] = {"login": "octocat"}
    await deliver(bot, again, job(bot, "build", "A", attempt=2, number=2))
    key = (await bot.get(HUD))[1].partition('data-key="')[2].partition('"')[0]
    text = await page_text(bot, f"{HUD}?cell={COMMITS['A'][:12]}.{key}")
    assert "success – attempt 2 by octocat 4 min" in text
    assert "failure – push 4 min" in text


def rerun(bot, number):
    return f'href="{bot.github.url}/{UPSTREAM}/actions/runs/77/job/{number}"'


@SQLITE
async def test_a_failed_job_leads_to_where_github_runs_it_again(bot):
    deliveries = [job(bot, "build", name, "failure", number=at + 1) for at, name in enumerate("ABC")]
    deliveries.append(job(bot, "build", "C", "failure", number=9, attempt=2))
    await deliver(
        bot, push(bot, "A"), push(bot, "B", parent="A", at=1), push(bot, "C", parent="B", at=2), *deliveries
    )
    link = (await bot.get(HUD))[1].partition('">its last failure')[0].rpartition('href="')[2]
    opened = (await bot.get(link.partition("#")[0]))[1]
    assert rerun(bot, 9) in opened
    assert rerun(bot, 3) not in opened  # it was run again already
    bot.clock.advance(31 * 86_400)
    assert rerun(bot, 9) not in (await bot.get(link.partition("#")[0]))[1]  # GitHub does not any more


@SQLITE
async def test_a_job_that_passed_need_not_run_again(bot):
    await history(bot, "success")
    key = (await bot.get(f"{HUD}?groups=0"))[1].partition('data-key="')[2].partition('"')[0]
    assert "Re-run" not in await page_text(bot, f"{HUD}?cell={COMMITS['A'][:12]}.{key}")


@SQLITE
async def test_an_outcome_that_nobody_knows_makes_no_commit_green(bot):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"), job(bot, "lint", "A", "stale"),
               push(bot, "B", parent="A", at=1), job(bot, "build", "B"), job(bot, "lint", "B", "skipped"))  # fmt: skip
    assert [line["verdict"] for line in (await bot.get(API))[1]["lines"]] == ["green", "none"]
    assert "no verdict" in (await bot.get(HUD))[1]


@SQLITE
async def test_a_line_says_how_long_its_full_result_took(bot):
    await history(bot, "success", "")
    await deliver(bot, job(bot, "lint", "A", at=2))
    await bot.wait(60)
    text = await page_text(bot, HUD)
    assert text.count("full result in") == 1  # one still runs
    assert "full result in 7 min" in text
    await deliver(bot, job(bot, "docs", "A", "", at=3))
    assert "full result in" not in await page_text(bot, HUD)


@SQLITE
async def test_a_pass_on_a_second_try_mends_nothing(bot):
    await history(bot, "success", "failure", "failure", "failure", "failure")
    await deliver(bot, job(bot, "build", "E", attempt=2, number=10**9))
    assert await columns(bot) == {"pull / build": "broken"}
    assert "3 failures in a row" in await page_text(bot, HUD)


@SQLITE
async def test_an_open_cell_says_what_started_each_run_and_how_long_it_took(bot):
    await history(bot, "failure")
    again, dispatched = run(bot, "A", attempt=2), run(bot, "A", number=78, event="workflow_dispatch")
    for _, body in (again, dispatched):
        body["workflow_run"]["triggering_actor"] = {"login": "octocat"}
    await deliver(bot, run(bot, "A", conclusion="failure"), again, dispatched, job(bot, "build", "A", attempt=2, number=2),
               job(bot, "build", "A", run=78, number=3))  # fmt: skip
    key = (await bot.get(HUD))[1].partition('data-key="')[2].partition('"')[0]
    text = await page_text(bot, f"{HUD}?cell={COMMITS['A'][:12]}.{key}")
    assert "failure – push 4 min" in text
    assert "success – attempt 2 by octocat 4 min" in text
    assert "success – dispatched by octocat 4 min" in text
