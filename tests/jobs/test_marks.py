"""What cells say beside results: flakes, silence, what started a run, runs that never started, jobs of one name."""

from __future__ import annotations

import itertools

import pytest

from bot.jobs import job_cells
from bot.jobs.grid import key_of_column
from tests.harness import START, UPSTREAM
from tests.jobs.branch import COMMITS, MINUTE, deliver, iso, job, push, run
from tests.jobs.test_hud import API, HUD, shown
from tests.pages.page_checks import failures, page_text
from tests.serving import SQLITE

FILE = ".github/workflows/pull.yml"
SAYS_WHY = f"no job of {FILE} was started; only the run's page on GitHub says why"
LAST_GOOD = f"/api/ci/{UPSTREAM}/last-good"
QUEUE = f"/api/ci/queue/{UPSTREAM}"


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


def unstarted(bot, commit, *, number=77, conclusion="startup_failure", name="pull"):
    """A run that ended without a job, as GitHub tells of it."""
    event, body = run(bot, commit, number=number, conclusion=conclusion, name=name)
    url = f"https://github.com/{UPSTREAM}/actions/runs/{number}"
    body["workflow_run"] |= {"path": FILE, "html_url": url, "display_title": "Change A"}
    return event, body


async def cells_shown(bot):
    """The columns with the newest commit's cells."""
    body = (await bot.get(API))[1]
    return {one["name"]: body["lines"][0]["cells"].get(str(at)) for at, one in enumerate(body["columns"])}


@pytest.mark.logic
async def test_a_cell_says_that_nothing_was_started_and_where_the_reason_is(bot):
    await deliver(bot, push(bot, "A"), unstarted(bot, "A"))
    assert await cells_shown(bot) == {
        "pull / (did not start)": {"c": "X", "line": f"startup failure: {SAYS_WHY}"}
    }
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
    assert await cells_shown(bot) == {name: {"c": "X", "line": f"failure: {SAYS_WHY}"}}
    await bot.settle(60)  # once the cells of the commit are stored
    assert list(await cells_shown(bot)) == [name]


@SQLITE
async def test_a_workflow_without_a_name_whose_job_failed_was_started(bot):
    await deliver(bot, push(bot, "A"), unstarted(bot, "A", conclusion="failure", name=FILE),
               job(bot, "build", "A", "failure", workflow=FILE))  # fmt: skip
    assert list(await cells_shown(bot)) == [f"{FILE} / build"]
    await bot.settle(60)
    assert list(await cells_shown(bot)) == [f"{FILE} / build"]


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
    assert len((await cells_shown(bot))["pull / (did not start)"]["line"]) < 300


async def cells_of(bot, name="pull / build"):
    """The newest commit's verdict, and its cell of a job."""
    body = (await bot.get(API))[1]
    place = next(str(at) for at, column in enumerate(body["columns"]) if column["name"] == name)
    line = body["lines"][0]
    cell = line["cells"].get(place, {})
    return line["verdict"], cell.get("c"), cell.get("n")


@pytest.mark.logic
async def test_a_job_that_failed_is_red_though_one_of_another_workflow_of_this_name_passed(bot):
    await deliver(
        bot, push(bot, "A"),
        run(bot, "A", number=77, workflow_id=1, conclusion="failure"), run(bot, "A", number=78, workflow_id=2),
        job(bot, "build", "A", "failure", number=1, run=77), job(bot, "build", "A", number=2, run=78),
    )  # fmt: skip
    assert await cells_of(bot) == ("red", "X", [1, 2])
    page = await page_text(bot, f"{HUD}?cell={COMMITS['A'][:12]}.{key_of_column('pull / build')}")
    assert "in 1 of 2 jobs of this name" in page
    await deliver(bot, job(bot, "build", "A", number=3, run=77, attempt=2, at=9))
    assert await cells_of(bot) == ("green", "F", [1, 2])


@SQLITE
@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        (["fail 1, pass 2"], ("red", "X", [1, 2])),
        (["fail 1, pass 2", "pass 3"], ("green", "F", [1, 2])),  # what had failed was run again
        (["pass 1, fail 2", "copy 3, pass 4"], ("green", "F", [1, 2])),
        (["pass 1, fail 2", "fail 3, copy 4"], ("red", "X", [1, 2])),  # in another order
        (["fail 1, pass 2", "fail 3, pass 4"], ("red", "X", [1, 2])),
        (["fail 1, fail 2", "pass 3"], ("red", "X", [1, 2])),
        (["pass 1, pass 2"], ("green", "O", [2, 2])),
    ],
)
async def test_two_jobs_of_one_name_in_a_run(bot, attempts, expected):
    deliveries = [push(bot, "A"), run(bot, "A", conclusion="failure")]
    for attempt, each in enumerate(attempts, 1):
        for text in each.split(", "):
            word, number = text.split()
            at = 0 if word == "copy" else attempt * 10 + int(number)
            conclusion = "failure" if word == "fail" else "success"
            deliveries.append(
                job(bot, "build", "A", conclusion, number=int(number), attempt=attempt,
                    at=11 if word == "copy" and attempts[0].startswith("pass") else at)
            )  # fmt: skip
    await deliver(bot, *reversed(deliveries))
    assert await cells_of(bot) == expected


@SQLITE
async def test_what_never_passed_is_no_good_commit(bot):
    await deliver(
        bot, push(bot, "A"), push(bot, "B", parent="A", at=9),
        job(bot, "build", "A"),
        job(bot, "build", "B", "failure", number=5), job(bot, "build", "B", number=6),
    )  # fmt: skip
    assert (await bot.get(LAST_GOOD))[1]["sha"] == COMMITS["A"]


@pytest.mark.logic
async def test_a_failure_in_a_run_that_succeeded_is_allowed(bot):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "nightly torch", "A", "failure", number=2),
    )  # fmt: skip
    assert await cells_of(bot, "pull / nightly torch") == ("red", "X", None)  # the run goes on
    await deliver(bot, run(bot, "A"))
    assert await cells_of(bot, "pull / nightly torch") == ("green", "A", None)
    assert "failure, which is allowed" in (await bot.get(HUD))[1]
    status, body = await bot.get(LAST_GOOD)
    assert (status, body["columns"]) == (200, 2)
    await bot.wait(60)
    jobs = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    assert [(one["name"], one["runs"], one["passed"]) for one in jobs] == [("pull / build", 1, 1)]


@SQLITE
@pytest.mark.parametrize(("conclusion", "expected"), [("success", ("green", "S")), ("failure", ("red", "C"))])
async def test_a_job_that_github_leaves_queued_ends_with_its_run(bot, conclusion, expected):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "docs", "A", "", status="queued", number=2),
    )  # fmt: skip
    assert (await cells_of(bot, "pull / docs"))[:2] == ("running", "Q")
    bot.clock.advance(27 * 3600)
    assert [one["waiting"] for one in (await bot.get(QUEUE))[1]["runners"]] == [1]
    await deliver(bot, run(bot, "A", conclusion=conclusion))
    assert (await cells_of(bot, "pull / docs"))[:2] == expected
    assert [one["waiting"] for one in (await bot.get(QUEUE))[1]["runners"]] == [0]


@pytest.mark.logic
async def test_a_job_that_waits_for_an_approval_waits_for_no_runner(bot):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "deploy", "A", "", status="waiting", number=2),
    )  # fmt: skip
    bot.clock.advance(3 * 3600)
    assert not [one for one in (await bot.get(QUEUE))[1]["runners"] if one["waiting"]]
    _, body = job(bot, "deploy", "A", number=2)
    body["workflow_job"]["started_at"] = iso(START + 170 * MINUTE)
    body["workflow_job"]["completed_at"] = iso(START + 175 * MINUTE)
    await deliver(bot, ("workflow_job", body))
    await bot.wait(60)
    (runner,) = (await bot.get(QUEUE))[1]["runners"]
    assert (runner["jobs"], sum(runner["queue_counts_week"]), runner["queue_p90"]) == (
        2,
        1,
        runner["queue_p50"],
    )


@SQLITE
async def test_a_job_that_no_runner_took_has_no_queue_time(bot):
    deliveries = [job(bot, f"job {at}", "A", conclusion, number=at) for at, conclusion in
                  enumerate(("success", "skipped", "cancelled"), 1)]  # fmt: skip
    for _, body in deliveries[1:]:
        body["workflow_job"]["started_at"] = body["workflow_job"]["completed_at"]
    await deliver(bot, push(bot, "A"), *deliveries)
    await bot.wait(60)
    (runner,) = (await bot.get(QUEUE))[1]["runners"]
    assert (runner["jobs"], sum(runner["queue_counts_week"])) == (3, 1)


@pytest.mark.logic
async def test_what_a_rerun_lists_again_is_counted_once(bot):
    await deliver(
        bot, push(bot, "A"), job(bot, "build", "A", number=1), job(bot, "test", "A", "failure", number=2),
        job(bot, "build", "A", number=11, attempt=2), job(bot, "test", "A", number=12, attempt=2, at=30),
    )  # fmt: skip
    await bot.wait(60)
    whole = (await bot.get(f"/api/ci/metrics/{UPSTREAM}"))[1]["whole"]
    assert (whole["jobs"], whole["reruns"], whole["job_seconds"]) == (3, 1, 3 * 4 * 60)
    jobs = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    assert {one["name"]: one["job_seconds"] for one in jobs} == {"pull / build": 240, "pull / test": 480}
    (runner,) = (await bot.get(QUEUE))[1]["runners"]
    assert runner["jobs"] == 3
    found = (await bot.get(f"/{UPSTREAM}/commit/{COMMITS['A']}"))[1]
    drawn = found[found.index("When jobs waited and ran") :]
    assert '/job/1"' in drawn
    assert '/job/11"' not in drawn
