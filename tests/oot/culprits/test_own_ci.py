"""Upstream's own CI: a run is run again, or a tag starts one; and what the operator is told of it."""

import pytest

from bot.oot.culprits.feature import CulpritsSettings, tag
from tests import harness
from tests.harness import UPSTREAM
from tests.oot.culprits.searched import Branch
from tests.oot.culprits.test_story import begin, newest_answer

pytestmark = pytest.mark.logic

TAG = "ciflow/{workflow}/{sha}"
JOB = "linux / test"


@pytest.fixture
async def bot(settings, app_key, issuer, clock, tmp_path):
    """A bot whose App may run upstream's CI again, and create tags."""
    async with harness.simulated_github(clock, app_key) as github:
        chosen = harness.make_settings(
            github=github, issuer=issuer, app=github.app, folder=tmp_path,
            of_features=settings.of_features | {CulpritsSettings: CulpritsSettings(ci_bisect_tag=TAG)},
        )  # fmt: skip
        async with harness.running(
            chosen, github=github, issuer=issuer, app=github.app, clock=clock, begun=True
        ) as made:
            yield made


async def ran(github, sha, conclusion):
    """A run of upstream's CI on a commit."""
    run = await github.start_run(UPSTREAM, event="push", name="trunk", head_sha=sha)
    job = await github.start_job(run, JOB)
    await github.finish_job(job, conclusion)
    await github.finish_run(run, conclusion)
    return run


async def finished_again(github, run, conclusion):
    """The next attempt of a run ends so."""
    job = await github.start_job(run, JOB)
    await github.finish_job(job, conclusion)
    await github.finish_run(run, conclusion)


async def test_runs_are_run_again_and_tags_start_the_others(bot):
    github = bot.github
    branch = Branch(bot, github)
    await branch.push(6)
    await ran(github, branch.shas[0], "success")
    bad = await ran(github, branch.shas[5], "failure")
    await bot.settle()
    assert (await begin(bot, github, "/oot bisect upstream"))[0] == ["eyes", "rocket"]
    await bot.settle(horizon=10)
    assert bad.run_attempt == 2
    await finished_again(github, bad, "failure")
    for _ in range(4):
        await bot.settle(horizon=10)
        upstream = github.state.repo(UPSTREAM)
        tagged = {
            name: sha for name, sha in upstream.branches.items() if name.startswith("refs/tags/ciflow/trunk/")
        }
        for sha in tagged.values():
            if not any(run.head_sha == sha for run in upstream.runs.values()):
                bot.clock.advance(5)
                await ran(github, sha, "failure" if branch.shas.index(sha) >= 3 else "success")
        for run in list(upstream.runs.values()):
            if run.status != "completed":
                bot.clock.advance(5)
                await finished_again(github, run, "failure")
    await bot.settle(horizon=10)
    search = await branch.search()
    assert (search["state"], search["culprit_sha"]) == ("found", branch.shas[3]), search["why"]
    assert search["why"].startswith(f"upstream: trunk / {JOB} is broken by #103")
    steps = await bot.rows("bisect_step")
    assert {f"ciflow/trunk/{sha}" for sha in branch.shas[2:4]} <= {step["tag"] for step in steps}
    assert all(step["outcome"] for step in steps)


@pytest.mark.nightly
async def test_the_permission_that_is_missing_is_said(bot):
    github = bot.github
    for installation in github.state.installations.values():
        installation.permissions["actions"] = "read"
    branch = Branch(bot, github)
    await branch.push(4)
    await ran(github, branch.shas[0], "success")
    await ran(github, branch.shas[3], "failure")
    await bot.settle()
    await begin(bot, github, "/oot bisect upstream trunk / linux / test")
    await bot.settle(horizon=30)
    search = await branch.search()
    assert search["state"] == "gave_up"
    assert search["why"].startswith("upstream could not be run: GitHub refused to run it")


@pytest.mark.nightly
async def test_only_write_access_searches_upstream(bot):
    branch = Branch(bot, bot.github)
    await branch.push(2)
    assert (await begin(bot, bot.github, "/oot bisect upstream", "carol"))[0] == ["eyes", "confused"]
    assert "that takes write access" in await newest_answer(bot)


@pytest.mark.parametrize(
    "wrong", ["ciflow/trunk", "{sha}/{job}", "a b/{sha}", "/{sha}", "{sha", "x..y/{sha}", "{0}{sha}"]
)
def test_a_pattern_that_makes_no_tag_is_refused(wrong):
    with pytest.raises(ValueError, match="tag"):
        tag(wrong)
    assert tag(TAG) == TAG
