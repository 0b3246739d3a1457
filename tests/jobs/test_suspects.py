"""What broke a branch: the commits that may have, and the last good one."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from tests.harness import L3, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import add_job, check_escaped, page_text
from tests.serving import SQLITE

PASSES = {"A": "success", "B": None, "C": "failure", "D": "failure", "E": "failure"}
LAST_GOOD = f"/api/ci/{UPSTREAM}/last-good"


def came(number):
    return f"{number:040x}"


def breakage(bot, *, commits=1, forced=False):
    """A job that passed on A, had no result on B, and fails from C on; with C came further commits."""
    parents = dict(zip("BCDE", "ABCD", strict=True))
    pushes = [push(bot, name, parent=parents.get(name), at=at, commits=commits if name == "C" else 1,
                   forced=forced and name == "C") for at, name in enumerate("ABCDE")]  # fmt: skip
    jobs = [job(bot, "build", name, conclusion) for name, conclusion in PASSES.items() if conclusion]
    return [*pushes, *jobs]


async def broken(bot):
    (one,) = (await bot.get(API))[1]["broken"]
    return one


@pytest.mark.logic
async def test_what_came_with_a_push_is_among_the_suspects(bot):
    await deliver(bot, *breakage(bot, commits=3))
    one = await broken(bot)
    assert (one["name"], one["failures"], one["same"]) == ("pull / build", 3, True)
    assert (one["first_bad"], one["last_good"]) == (COMMITS["C"], COMMITS["A"])
    suspects = [COMMITS["C"], came(1), came(0), COMMITS["B"]]
    assert [each["sha"] for each in one["suspects"]] == suspects
    assert [each["pushed_with"] for each in one["suspects"]] == [None, *[COMMITS["C"]] * 2, None]
    assert one["suspects"][0] == {"sha": COMMITS["C"], "title": "Change C (#67)", "author": "octocat", "pr": 67,
                                  "pushed_with": None}  # fmt: skip
    page = (await bot.get(HUD))[1]
    check_escaped(page)
    assert all(f'/{UPSTREAM}/commit/{sha}"' in page for sha in suspects)
    assert f'/{UPSTREAM}/compare/{COMMITS["A"]}...{COMMITS["C"]}"' in page
    text = await page_text(bot, HUD)
    assert "4 suspects" in text
    assert "by octocat at the latest committed" in text  # B has no result
    assert "last known good" in text


@SQLITE
async def test_a_commit_that_a_forced_push_took_away_is_no_suspect(bot):
    await deliver(bot, *breakage(bot, forced=True))
    lines = (await bot.get(API))[1]["lines"]
    assert [line["gone"] for line in lines] == [False, False, False, True, False]
    assert [each["sha"] for each in (await broken(bot))["suspects"]] == [COMMITS["C"]]


@SQLITE
async def test_many_suspects_are_counted(bot):
    await deliver(bot, *breakage(bot, commits=300))
    one = await broken(bot)
    assert (len(one["suspects"]), one["more_suspects"]) == (100, 201)
    text = await page_text(bot, HUD)
    assert "301 suspects" in text
    assert "271 more are not shown" in text
    assert [line["folded"] for line in (await bot.get(API))[1]["lines"]] == [0, 0, 299, 0, 0]


@SQLITE
async def test_without_a_last_good_commit_the_first_bad_one_is_shown(bot):
    deliveries = [
        one for one in breakage(bot, commits=2) if one[1].get("after") not in map(COMMITS.get, "AB")
    ]
    await deliver(bot, *(one for one in deliveries
                      if one[1].get("workflow_job", {}).get("head_sha") != COMMITS["A"]))  # fmt: skip
    one = await broken(bot)
    assert (one["last_good"], [each["sha"] for each in one["suspects"]]) == (
        None, [COMMITS["C"], came(0)],
    )  # fmt: skip
    assert "never green in what is known" in await page_text(bot, HUD)


class TestTitles:
    """A bot that asks GitHub for the newest commits."""

    @pytest.fixture
    def settings(self, settings):
        """The settings of a bot that asks GitHub."""
        return replace(settings, of_features={CollectSettings: CollectSettings(ci_logs="off")})

    @SQLITE
    @pytest.mark.parametrize("listed", ["before the push is heard of", "after it"])
    async def test_they_have_the_titles_that_github_lists(self, bot, github, listed):
        base = await github.push(UPSTREAM, message="Base")
        await bot.settle()
        github.faults.add(method="HOOK", path=".", drop=True, times=1_000)
        shas = []
        for title in ("One <b>", "Two", "Three (#3)"):
            bot.clock.advance(60)
            shas.append(await github.push(UPSTREAM, message=title))
        if listed.startswith("before"):
            await bot.wait(700)
        event, body = push(bot, shas[-1], parent=base, title="Three (#3)")
        body["commits"] = [{"id": sha} for sha in shas]
        await deliver(bot, (event, body), job(bot, "build", base))
        github.faults.clear()
        newest = shas[-1]
        for name in "DE":
            bot.clock.advance(60)
            await deliver(bot, job(bot, "build", newest, "failure"))
            newest = await github.push(UPSTREAM, message=name)
        await bot.settle()
        await deliver(bot, job(bot, "build", newest, "failure"))
        await bot.wait(700)
        suspects = (await broken(bot))["suspects"]
        assert [(each["title"], each["pushed_with"]) for each in suspects] == [
            ("Three (#3)", None), ("Two", shas[-1]), ("One <b>", shas[-1]),
        ]  # fmt: skip
        assert all(each["author"] for each in suspects)
        check_escaped((await bot.get(HUD))[1])


@SQLITE
async def test_what_failed_on_a_commit_that_a_forced_push_took_away_is_no_evidence(bot):
    pushes = [push(bot, name, parent=parent, at=at, forced=name == "C")
              for at, (name, parent) in enumerate(zip("ABCDE", (None, *"ABCD"), strict=True))]  # fmt: skip
    await deliver(
        bot, *pushes, job(bot, "build", "A"), *(job(bot, "build", name, "failure") for name in "BCD")
    )
    body = (await bot.get(API))[1]
    assert (body["columns"][0]["state"], body["broken"]) == ("suspect", [])
    await deliver(bot, job(bot, "build", "E", "failure"))
    one = await broken(bot)
    assert (one["first_bad"], one["last_good"], one["failures"]) == (COMMITS["C"], COMMITS["A"], 3)
    assert [each["sha"] for each in one["suspects"]] == [COMMITS["C"]]
    await bot.wait(60)
    changes = (await bot.get(f"/api/ci/metrics/{UPSTREAM}"))[1]["changes"]
    assert {each["first_bad"] for each in changes} == {COMMITS["C"]}
    assert f"known fails since {COMMITS['C'][:8]}" in await page_text(
        bot, f"/{UPSTREAM}/commit/{COMMITS['D']}"
    )


async def history(bot):
    await deliver(
        bot, push(bot, "A"), push(bot, "B", parent="A", at=9), push(bot, "C", parent="B", at=20),
        job(bot, "build", "A"), job(bot, "lint", "A"),
        job(bot, "build", "B", "failure", number=5), job(bot, "build", "B", number=6, attempt=2), job(bot, "lint", "B"),
        job(bot, "build", "C"), job(bot, "lint", "C", "failure"),
    )  # fmt: skip


@pytest.mark.logic
async def test_the_newest_commit_on_which_all_of_it_passed(bot):
    await history(bot)
    status, body = await bot.get(LAST_GOOD)
    assert (status, body["sha"], body["columns"]) == (200, COMMITS["B"], 2)  # a second try counts
    assert (await bot.get(f"{LAST_GOOD}?jobs=build&branch=main"))[1]["sha"] == COMMITS["C"]


@pytest.mark.logic
async def test_a_backend_has_to_have_passed_as_well(bot):
    await history(bot)
    status, body = await bot.get(f"{LAST_GOOD}?backends={L3}")
    assert (status, body["error"]) == (404, "no_good_commit")
    assert L3 in body["detail"]
    await add_job(bot, pr_number=None, event_type="push", head_sha=COMMITS["A"], downstream_repo=L3)
    assert (await bot.get(f"{LAST_GOOD}?backends={L3}"))[1]["sha"] == COMMITS["A"]


@SQLITE
@pytest.mark.parametrize("jobs", ["windows", "^x$"])
async def test_no_job_is_never_a_good_one(bot, jobs):
    await history(bot)
    assert (await bot.get(f"{LAST_GOOD}?jobs={jobs}"))[1]["error"] == "no_good_commit"


@SQLITE
async def test_a_pattern_that_cannot_be_used_is_named(bot):
    await history(bot)
    status, body = await bot.get(f"{LAST_GOOD}?jobs=(?=a)")
    assert (status, body["error"]) == (400, "invalid_parameter")
    assert "jobs" in body["detail"]


@SQLITE
async def test_a_commit_that_still_runs_is_not_good(bot):
    await deliver(
        bot,
        push(bot, "A"),
        push(bot, "B", parent="A", at=9),
        job(bot, "build", "A"),
        job(bot, "build", "B", ""),
    )
    assert (await bot.get(LAST_GOOD))[1]["sha"] == COMMITS["A"]


@pytest.mark.logic
async def test_it_may_lie_far_back(bot):
    names, replaced = [f"{number:040x}" for number in range(1, 80)], "f" * 40
    await deliver(bot, *(push(bot, name, parent=parent, at=number) for number, (parent, name)
                      in enumerate(itertools.pairwise([None, *names])) if number != 2))  # fmt: skip
    await deliver(bot, push(bot, replaced, parent=names[1], at=1), push(bot, names[2], parent=replaced, at=2, forced=True),
               job(bot, "build", replaced), job(bot, "lint", replaced))  # fmt: skip
    for number, name in enumerate(names):
        outcome = "success" if number < 3 else "failure"
        await deliver(
            bot,
            job(bot, "build", name, outcome),
            job(bot, "lint", name, "success" if number != 2 else "failure"),
        )
    for _ in range(2):  # the second time with stored cells
        assert (await bot.get(LAST_GOOD))[1]["sha"] == names[1]
        assert (await bot.get(f"{LAST_GOOD}?jobs=build"))[1]["sha"] == names[2]
        await bot.wait(60)


@pytest.mark.logic
async def test_jobs_that_run_on_few_commits_are_selected_only_where_they_are_said_to_block(bot):
    names = "ABCDE"
    pushes = [push(bot, name, parent=before, at=9 * at) for at, (before, name) in enumerate(
        zip((None, *names), names, strict=False))]  # fmt: skip
    await deliver(
        bot, *pushes, *(job(bot, "build", name) for name in names),
        job(bot, "weekly", "A", workflow="periodic", run=99),
        job(bot, "docs", "C", "failure"), job(bot, "docs", "B"), job(bot, "docs", "A"),
    )  # fmt: skip
    status, body = await bot.get(LAST_GOOD)
    assert (status, body["sha"], body["columns"]) == (200, COMMITS["B"], 2)  # docs ran on most of them
    assert (await bot.get(f"{LAST_GOOD}?jobs=weekly|build"))[1]["sha"] == COMMITS["A"]
