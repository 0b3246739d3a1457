"""The commits that may have broken a job: all that came between its last pass and its first failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import check_escaped, page_text
from tests.serving import SQLITE

PASSES = {"A": "success", "B": None, "C": "failure", "D": "failure", "E": "failure"}


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
