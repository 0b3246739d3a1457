"""A commit with the same files as one that has passed takes that result over, where the entry says so."""

import pytest

from bot.demo.github import git
from tests.flows.scenarios import dispatched_to, reasons, states
from tests.harness import L2, UPSTREAM
from tests.oot.dispatch.selected import entry, explained, open_pull

pytestmark = pytest.mark.logic


async def rebased(bot, github, pull):
    """Push another commit with the same files."""
    bot.clock.advance(5)
    made = git.commit(
        pull.repo, at=bot.clock.now(), message="again", author="octocat", parents=(pull.head_sha,)
    )
    await github.push_commit(pull, commit=made.sha)
    await bot.settle()


@pytest.mark.parametrize("conclusion", ["success", "failure", None])
async def test_only_a_result_that_has_passed_is_taken_over(bot, github, conclusion):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    if conclusion:
        await bot.report(bot.dispatch(L2), conclusion=conclusion)
        await bot.settle()
    first = pull.head_sha
    await rebased(bot, github, pull)
    taken = conclusion == "success"
    assert (await states(bot, L2))[-1] == ("skipped_tree" if taken else "sent")
    assert len(dispatched_to(github)) == (1 if taken else 2)
    if taken:
        assert f"has passed on commit {first[:7]}" in (await reasons(bot, L2))[-1]
        assert f"/{UPSTREAM}/pull/{pull.number}?sha={first}" in (await reasons(bot, L2))[-1]
        assert await explained(bot, pull) == {L2: ("skipped", "tree")}
        _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
        assert "not needed" in page
        assert first[:7] in page


async def test_other_files_are_run(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    bot.clock.advance(5)
    await github.push_commit(pull)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "sent"]


async def test_where_github_never_names_the_tree_it_is_run_after_two_minutes(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    await bot.settle()
    github.faults.add(method="GET", path="/commits/", status=404, times=50)
    await rebased(bot, github, pull)
    assert await states(bot, L2) == ["sent"]
    bot.clock.advance(130)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "sent"]


@pytest.mark.nightly
async def test_a_commit_may_be_young_though_its_pull_request_is_not(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    await bot.settle()
    await bot.wait(3600)
    github.faults.add(method="GET", path="/commits/", status=422, times=1)
    await rebased(bot, github, pull)
    bot.clock.advance(5)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "skipped_tree"]


async def test_where_github_names_the_tree_late_its_result_is_taken_over(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    await bot.settle()
    github.faults.add(method="GET", path="/commits/", status=404, times=1)
    await rebased(bot, github, pull)
    bot.clock.advance(5)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "skipped_tree"]
