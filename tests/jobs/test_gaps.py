"""Which jobs decide a commit's verdict, what GitHub is asked for, and tests that failed in the cells of their jobs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings, TrunkSettings
from tests.command import ootbot
from tests.evidence.disabled import issues
from tests.evidence.disabled.issues import issue, may_write
from tests.evidence.tests.reported import case, ran, xml
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.jobs.test_broken_counts import broken, failing
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import page_text
from tests.serving import SQLITE

LOST = {"method": "HOOK", "path": ".", "drop": True, "times": 1_000}
LAST_GOOD = f"/api/ci/{UPSTREAM}/last-good"
TEST = "linux / test (default, {}, 2, linux.4xlarge)"
HOUR = 3700
JOB = "linux / test (default, linux.large)"
HORIZON = 180


@pytest.fixture
def settings(settings):
    """The settings of a bot that asks GitHub."""
    return replace(settings, of_features={CollectSettings: CollectSettings(ci_logs="off")})


@pytest.fixture
def today(bot):
    """The bot's clock shows what the clock of a command beside it shows."""
    bot.clock.at = time.time_ns() // 1_000_000


async def lines(bot):
    return [
        (line["title"], [cell["c"] for cell in line["cells"].values()])
        for line in (await bot.get(API))[1]["lines"]
    ]


async def a_push(bot, github, title, conclusion="success"):
    """A push to main with one job on it, a minute after the last."""
    bot.clock.advance(60)
    sha = await github.push(UPSTREAM, message=title)
    run = await github.start_run(UPSTREAM, name="pull", event="push", head_sha=sha)
    job = await github.start_job(run, "build")
    await github.finish_job(job, conclusion)
    await github.finish_run(run, conclusion)
    return sha


@pytest.mark.logic
async def test_a_lost_push_is_found_in_githubs_list(bot, github):
    await a_push(bot, github, "First")
    await bot.settle()
    github.faults.add(**LOST)
    await a_push(bot, github, "Second")
    github.faults.clear()
    await a_push(bot, github, "Third")
    await bot.settle()
    assert [title for title, _ in await lines(bot)] == ["Third", "First"]
    await bot.wait(700)
    assert [title for title, _ in await lines(bot)][:3] == ["Third", "Second", "First"]


@pytest.mark.logic
async def test_a_commit_leads_to_its_pull_request_although_its_title_does_not_tell(bot, github):
    await a_push(bot, github, "First")
    await bot.settle()
    pull = await github.open_pull(UPSTREAM)
    bot.clock.advance(60)
    github.faults.add(method="HOOK", path="push", drop=True, times=10)
    merged = await github.merge(pull)
    commits = github.state.repo(UPSTREAM).commits
    commits[merged] = replace(commits[merged], message="Plain")
    github.faults.clear()
    await bot.wait(700)
    newest = (await bot.get(API))[1]["lines"][0]
    assert (newest["sha"], newest["title"], newest["pr"]) == (merged, "Plain", pull.number)


@pytest.mark.logic
async def test_what_was_before_the_app_is_filled_in(bot, github, today):
    github.faults.add(**LOST)
    for number in range(3):
        await a_push(bot, github, f"Change {number} (#{number + 7})", "failure" if number == 1 else "success")
    github.faults.clear()
    bot.clock.advance(60)
    await github.push(UPSTREAM, message="Last")
    await bot.settle()
    code, _, err = await ootbot(bot, "ci", "backfill", UPSTREAM, "--commits", "4")
    assert code == 0, err
    assert "commits, 3 runs, 3 jobs" in err
    await bot.settle(horizon=60)
    found = await lines(bot)
    assert found[:4] == [
        ("Last", []),
        ("Change 2 (#9)", ["O"]),
        ("Change 1 (#8)", ["X"]),
        ("Change 0 (#7)", ["O"]),
    ]
    asked = [call for call in github.calls if "head_sha" in call.query]
    code, _, err = await ootbot(bot, "ci", "backfill", UPSTREAM, "--commits", "4")
    assert (code, "1 of 1 commits" in err) == (0, True), err  # the one without a run is asked about again
    assert len([call for call in github.calls if "head_sha" in call.query]) == len(asked) + 1


@SQLITE
@pytest.mark.parametrize("arguments", [(), ("x/y", "--commits", "0"), ("x/y", "--commits", "5001")])
async def test_wrong_arguments_are_refused(bot, arguments):
    assert (await ootbot(bot, "ci", "backfill", *arguments))[0] == 2


@pytest.mark.logic
async def test_commits_that_were_listed_before_their_push_fold_under_its_head(bot, github):
    base = await a_push(bot, github, "Base")
    await bot.settle()
    github.faults.add(**LOST)
    shas = [await a_push(bot, github, title) for title in ("One", "Two", "Three")]
    github.faults.clear()
    await bot.wait(700)
    assert [title for title, _ in await lines(bot)][:4] == ["Three", "Two", "One", "Base"]
    event, body = push(bot, shas[-1], parent=base, title="Three")
    body["commits"] = [{"id": sha} for sha in shas]
    await deliver(bot, (event, body))
    expected = [(line["title"], line["sha"]) for line in (await bot.get(API))[1]["lines"]]
    assert expected[:2] == [("Three", shas[-1]), ("Base", base)]
    (head,) = [row for row in await bot.rows("branch_commit") if row["sha"] == shas[-1]]
    assert (head["parent"], head["folded"], head["author"]) == (base, 2, "octocat")
    await bot.wait(700)
    assert [(line["title"], line["sha"]) for line in (await bot.get(API))[1]["lines"]] == expected


class TestBranches:
    """A repository with many branches."""

    @pytest.fixture
    def settings(self, settings):
        """The settings of a bot that watches release branches."""
        watched = TrunkSettings(ci_branches=("release/*",))
        return replace(settings, of_features={**settings.of_features, TrunkSettings: watched})

    @SQLITE
    async def test_a_watched_branch_is_listed_however_many_others_there_are(self, bot, github):
        await deliver(bot, push(bot, "A", branch="release/1"), push(bot, "B", branch="release/0"))
        for number in range(210):
            event, body = push(bot, f"{number:040x}", branch=f"feature/{number}", at=number + 1)
            await bot.send(event, body)
        await bot.settle()
        await bot.wait(700)
        asked = {
            call.query.partition("sha=")[2].partition("&")[0]
            for call in github.calls
            if call.path.endswith("/commits")
        }
        assert asked == {"main", "release/0", "release/1"}
        known = (await bot.get(f"/hud/{UPSTREAM}/none"))[1]
        assert "feature/209" in known


async def columns(bot):
    """The group of each column, and whether it blocks."""
    return {
        one["name"].removeprefix("pull / "): (one["group"], one["blocking"])
        for one in (await bot.get(API))[1]["columns"]
    }


async def verdict(bot):
    """That of commit A; GitHub's list may have others."""
    lines = (await bot.get(API))[1]["lines"]
    return next(line["verdict"] for line in lines if line["sha"] == COMMITS["A"])


async def a_commit(bot):
    """A push with jobs: `lint` passed, `build` failed, both shards of a test passed."""
    await deliver(bot, push(bot, "A"), job(bot, "lint", "A"), job(bot, "build", "A", "failure"),
               *(job(bot, TEST.format(shard), "A") for shard in (1, 2)))  # fmt: skip


def required(bot, *names):
    bot.github.state.repo(UPSTREAM).required_checks["main"] = list(names)


class TestRequiredChecks:
    """GitHub's rules name the checks that a branch requires."""

    async def test_only_required_jobs_block(self, bot):
        required(bot, TEST.format(1), TEST.format(2), "lint", "oot / gate")
        await a_commit(bot)
        assert await verdict(bot) == "red"
        await bot.wait(700)
        assert await columns(bot) == {
            "lint": ("Lint", True), "build": ("Build", False), "linux / test (default)": ("Linux", True),
        }  # fmt: skip
        assert await verdict(bot) == "green"
        status, body = await bot.get(LAST_GOOD)
        assert (status, body["columns"]) == (200, 2)

    @SQLITE
    async def test_where_none_of_the_jobs_is_required_all_block(self, bot):
        required(bot, "oot / gate", "DCO")
        await a_commit(bot)
        await bot.wait(700)
        assert all(blocking for _, blocking in (await columns(bot)).values())
        assert (await bot.get(LAST_GOOD))[0] == 404

    @SQLITE
    async def test_the_last_answer_stays_while_there_is_no_other(self, bot, github):
        required(bot, "lint")
        await a_commit(bot)
        await bot.wait(700)
        github.faults.add(method="GET", path="/rules/branches", status=403, times=1_000)
        await bot.wait(HOUR)
        assert (await columns(bot))["build"] == ("Build", False)
        github.faults.clear()
        required(bot, "lint", "build")
        await bot.wait(HOUR)
        assert (await columns(bot))["build"] == ("Build", True)

    @SQLITE
    async def test_github_is_asked_once_an_hour(self, bot, github):
        required(bot, "lint")
        await a_commit(bot)
        await bot.wait(1300)
        calls = [call for call in github.state.calls if "/rules/branches/" in call.path]
        assert len(calls) == 1


class TestUnstable:
    """An issue that begins with UNSTABLE names a job that may fail."""

    @pytest.mark.logic
    @pytest.mark.parametrize(
        ("title", "failing"),
        [("pull / build", "build"), ("PULL / Linux / " + TEST.format(1).partition(" / ")[2], TEST.format(1))],
    )
    async def test_its_job_is_shown_apart_and_blocks_nothing(self, bot, title, failing):
        may_write(bot, "erin")
        await deliver(bot, push(bot, "A"), job(bot, "lint", "A"), job(bot, failing, "A", "failure"),
                   job(bot, TEST.format(2), "A"))  # fmt: skip
        assert await verdict(bot) == "red"
        await issues.deliver(bot, issue(bot, 5, f"UNSTABLE {title}"))
        found = await columns(bot)
        assert ("Unstable", False) in found.values()
        assert found["lint"] == ("Lint", True)
        assert await verdict(bot) == "green"
        await issues.deliver(bot, issue(bot, 5, f"UNSTABLE {title}", state="closed", at=60))
        assert await verdict(bot) == "red"

    @SQLITE
    async def test_a_workflow_names_all_of_its_jobs(self, bot):
        may_write(bot, "erin")
        await a_commit(bot)
        await issues.deliver(bot, issue(bot, 5, "UNSTABLE pull"))
        assert set((await columns(bot)).values()) == {("Unstable", False)}
        assert (await bot.get(f"{API}?hide=unstable"))[1]["columns"] == []
        assert (await bot.get(LAST_GOOD))[0] == 404  # nothing blocks: nothing can be good

    @SQLITE
    async def test_an_issue_of_somebody_without_write_access_changes_nothing(self, bot):
        await a_commit(bot)
        await issues.deliver(bot, issue(bot, 5, "UNSTABLE pull / build", by="mallory"))
        assert await verdict(bot) == "red"

    @SQLITE
    async def test_what_is_broken_is_counted_again(self, bot):
        may_write(bot, "erin")
        await failing(bot)
        assert (await broken(bot))["main", "Linux"] == 1
        await issues.deliver(bot, issue(bot, 5, "UNSTABLE pull / linux"))
        await bot.wait(60)
        assert ("main", "Linux") not in await broken(bot)


async def push_failing(bot, github, *failing):
    """A push, and a job whose report has these tests fail and one pass."""
    bot.clock.advance(60)
    sha = await github.push(UPSTREAM, message="Change")
    cases = [case("test_ok"), *(case(name, "failed") for name in failing)]
    outcome = "failure" if failing else "success"
    await ran(github, {"a.xml": xml(*cases)}, name=JOB, head_sha=sha, conclusion=outcome)
    await bot.settle(horizon=HORIZON)
    return sha


async def state(bot):
    (column,) = (await bot.get(API))[1]["columns"]
    return column["state"]


@pytest.mark.logic
@pytest.mark.parametrize(
    ("pushes", "expected"),
    [
        ([(), ("test_a", "test_b"), ("test_b",)], "broken"),
        pytest.param([(), ("test_a",), ("test_b",)], "suspect", marks=pytest.mark.nightly),
        ([("test_a",), ("test_a",)], "suspect"),  # nobody knows whether it ever passed
    ],
)
async def test_two_failures_of_one_new_test_are_a_breakage(bot, github, pushes, expected):
    for names in pushes:
        await push_failing(bot, github, *names)
    assert await state(bot) == expected


@SQLITE
async def test_a_cell_says_how_many_tests_failed(bot, github):
    sha = await push_failing(bot, github, "test_a", "test_b")
    body = (await bot.get(API))[1]
    assert [line["cells"]["0"]["tests"] for line in body["lines"] if line["sha"] == sha] == [2]
    page = (await bot.get(HUD))[1]
    assert "failure, 2 failed tests" in page
    key = page.partition('data-key="')[2].partition('"')[0]
    opened = await page_text(bot, f"{HUD}?cell={sha[:12]}.{key}")
    assert "3 tests, 1 passed, 2 failed" in opened
    assert "not measured" not in opened
