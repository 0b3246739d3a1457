"""What to disable and what to close: from evidence to a page with links that people follow."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from bot.demo.github.state import MAINTAINER
from bot.evidence.disabled import issue_text
from bot.evidence.disabled.feature import DisabledSettings
from bot.job_reports.test_lists import suggestions
from bot.job_reports.test_lists.suggestions import HOUR, Issue, Sample
from bot.job_reports.test_lists.times import NameOfTest
from tests.browser_of_pages import Visitor
from tests.evidence.tests.reported import case, ran, xml
from tests.harness import UPSTREAM

NOW = 1_000 * HOUR
LINUX = frozenset({"linux"})


def sample(job, *, test=1, hours=1.0, platforms=LINUX):
    return Sample(test, job, 7, job, f"job {job}", platforms, NOW - round(hours * HOUR))


def disable(samples, listed=None, places=None, closed=None):
    known = places or {number: NameOfTest(f"test_{number}", "TestX", "f.py") for number in range(1, 9)}
    return suggestions.to_disable(samples, known, listed or {}, NOW, closed or {})


@pytest.mark.parametrize(
    ("samples", "count"),
    [
        ([sample(1), sample(2), sample(3)], 1),
        ([sample(1), sample(2)], 0),
        ([sample(1), sample(1), sample(1)], 0),  # one job, however often
        ([sample(1, hours=7), sample(2), sample(3)], 0),
        ([sample(1, hours=5.5), sample(2, hours=5.5), sample(3, hours=5.5)], 0),  # not seen of late
        ([sample(1, hours=5.5), sample(2, hours=5.5), sample(3, hours=4.9)], 1),
        ([], 0),
    ],
)
def test_more_than_two_jobs_in_six_hours_and_seen_in_five(samples, count):
    assert len(disable(samples)) == count


def test_the_issue_that_is_suggested_does_what_it_says():
    found = disable([sample(1), sample(2, platforms=frozenset({"win"})), sample(3)])
    (one,) = found
    assert (one.title, one.platforms, one.issue) == (
        "DISABLED test_1 (__main__.TestX)", ("linux", "win"), None,
    )  # fmt: skip
    read = issue_text.read_issue(one.title, one.body, frozenset())
    assert [(entry.name, entry.platforms) for entry in read.entries] == [
        ("test_1 (__main__.TestX)", ("linux", "win"))
    ]
    query = parse_qs(urlsplit(suggestions.form_link("https://github.com", "org/project", one)).query)
    assert query == {"title": [one.title], "body": [one.body], "labels": ["skipped"]}


def test_more_than_four_tests_of_a_file_are_one_issue():
    few = [sample(job, test=test) for job in (1, 2, 3) for test in (1, 2, 3, 4)]
    assert len(disable(few)) == 4
    (one,) = disable([*few, *(sample(job, test=5) for job in (1, 2, 3))])
    read = issue_text.read_issue(one.title, one.body, frozenset())
    assert [entry.name for entry in read.entries] == [f"test_{n} (__main__.TestX)" for n in range(1, 6)]
    assert {entry.platforms for entry in read.entries} == {("linux",)}
    assert read.problems == ()


@pytest.mark.parametrize(
    ("listed", "platforms"), [([], None), (["linux"], None), (["win"], ("linux",)), (["linux", "win"], None)]
)
def test_what_is_disabled_already_is_not_suggested_again(listed, platforms):
    closed = {"DISABLED test_1 (__main__.TestX)": Issue("9", "https://x/9", closed=True)}
    open_ = {"test_1 (__main__.TestX)": ("12", "https://x/12", listed)}
    found = disable([sample(1), sample(2), sample(3)], open_, closed=closed)
    assert [(one.issue, one.platforms) for one in found] == (
        [(Issue("12", "https://x/12"), platforms)] if platforms else []
    )


def test_an_issue_that_was_closed_is_opened_again_alone():
    """The other four tests of the file are too few for one issue, and are no business of the closed one."""
    closed = {"DISABLED test_1 (__main__.TestX)": Issue("9", "https://x/9", closed=True)}
    found = disable([sample(job, test=test) for job in (1, 2, 3) for test in (1, 2, 3, 4, 5)], closed=closed)
    assert {one.title: one.issue and one.issue.number for one in found} == {
        f"DISABLED test_{number} (__main__.TestX)": "9" if number == 1 else None for number in range(1, 6)
    }


def test_hostile_names_stay_inside_the_form():
    places = {1: NameOfTest("test_" + "x" * 100_000 + "`<script>", "T\n# Heading", "f`.py\n")}
    (one,) = disable([sample(1), sample(2), sample(3)], places=places)
    assert not one.nameable
    assert len(suggestions.form_link("https://github.com", "org/project", one._replace(title="t"))) < 7_100


def issue(*entries, updated=15 * 24, listed=True):
    return {
        "repository_id": 1, "number": 5, "kind": "test", "unstable": False, "title": "DISABLED x", "author": "a",
        "url": "https://x/5", "listed": listed, "entries": list(entries), "problems": [], "created_at": 0,
        "updated_at": NOW - updated * HOUR,
    }  # fmt: skip


def rerun(green, red=0, platforms=("linux",)):
    return {"name": "test_x", "suite": "TestX", "green": green, "red": red, "platforms": list(platforms)}


X = "test_x (__main__.TestX)"


@pytest.mark.parametrize(
    ("issues", "reruns", "flaky", "closes"),
    [
        ([issue((X, []))], [rerun(100), rerun(50)], {}, True),
        ([issue((X, []))], [rerun(149)], {}, False),
        ([issue((X, []))], [rerun(500), rerun(0, 1)], {}, False),
        ([issue((X, []), updated=13 * 24)], [rerun(500)], {}, False),
        ([issue((X, []), listed=False)], [rerun(500)], {}, False),
        ([issue((X, ["npu"]))], [rerun(500)], {}, False),  # upstream's runs say nothing of the npu
        ([issue((X, ["npu"]))], [rerun(150, platforms=["npu"]), rerun(0, 9)], {}, True),
        ([issue((X, ["linux", "npu"]))], [rerun(500)], {}, False),
        ([issue((X, []), ("test_y (C)", []))], [rerun(500)], {}, False),
        ([issue((X, []))], [rerun(500)], {X: {"win", ""}}, False),
        ([issue((X, ["linux"]))], [rerun(500)], {X: {"win", ""}}, True),
        ([issue((X, ["linux"]))], [rerun(500)], {X: {"linux", ""}}, False),
        ([issue((X, []))], [], {}, False),
    ],
)
def test_issues_are_closed_on_evidence_of_their_own_platforms(issues, reruns, flaky, closes):
    assert [one.issue["number"] for one in suggestions.to_close(issues, reruns, flaky, NOW)] == [5] * closes


async def flaky_jobs(bot, github, count, **event):
    for number in range(count):
        await ran(
            github,
            {"a.xml": xml(case("test_add", "flaky"))},
            name=f"linux-jammy / test (default, {number + 1}, 9, linux.large)",
            **event,
        )
    await bot.settle(horizon=120)


async def new_issues(visitor, bot):
    """Where the links of the page lead."""
    bot.clock.advance(60)
    page = await visitor.open(f"{bot.url}/{UPSTREAM}/disabled/suggestions")
    assert page.status == 200
    return [link for link in page.links if "issues/new" in link]


@pytest.mark.logic
async def test_suggestions_are_off_unless_asked_for(bot, github):
    await flaky_jobs(bot, github, 3)
    for address in (f"/{UPSTREAM}/disabled/suggestions", f"/api/ci/disabled/{UPSTREAM}/suggestions"):
        assert (await bot.get(address))[0] == 404
    assert "suggestions" not in (await bot.get(f"/{UPSTREAM}/disabled"))[1]


class TestSuggesting:
    """With CI_DISABLE=suggest."""

    @pytest.fixture
    def options(self, options):
        return options | {DisabledSettings: DisabledSettings(ci_disable="suggest")}

    @pytest.mark.logic
    async def test_a_person_follows_a_link_to_a_new_issue(self, bot, github):
        await flaky_jobs(bot, github, 2)
        await flaky_jobs(bot, github, 3, event="pull_request", head_branch="main")  # of a fork, called main
        async with Visitor() as visitor:
            assert await new_issues(visitor, bot) == []
            await flaky_jobs(bot, github, 1)
            (link,) = await new_issues(visitor, bot)
            query = parse_qs(urlsplit(link).query)
            assert query["title"] == ["DISABLED test_add (__main__.TestOps)"]
            assert query["body"][0].startswith("Platforms: linux\n")
            await github.open_issue(UPSTREAM, query["title"][0], query["body"][0])
            await bot.settle(horizon=60)
            assert await new_issues(visitor, bot) == []

    @pytest.mark.logic
    async def test_an_issue_that_was_closed_is_to_be_opened_again(self, bot, github):
        title = "DISABLED test_add (__main__.TestOps)"
        for author in (MAINTAINER, "mallory"):  # the stranger's is newer, and would change nothing
            closed = await github.open_issue(UPSTREAM, title, by=author)
            await github.close_issue(closed)
        await flaky_jobs(bot, github, 3)
        _, answer = await bot.get(f"/api/ci/disabled/{UPSTREAM}/suggestions")
        (one,) = answer["disable"]
        assert (one["step"], one["issue"], one["tests"]) == ("reopen", closed.number - 1, [title[9:]])
        assert one["url"].endswith(f"/issues/{one['issue']}")
        assert [seen["name"][:11] for seen in one["seen_in"]] == ["linux-jammy"] * 3
        assert answer["close"] == []
        _, page = await bot.get(f"/{UPSTREAM}/disabled/suggestions")
        assert f'reopen <a href="{one["url"]}"' in page
        assert "issues/new" not in page
