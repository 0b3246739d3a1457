"""A branch that is rewritten while it is searched: the commits are no longer on it, and in time GitHub forgets them."""

from dataclasses import replace

import pytest

from bot.demo.github import git
from bot.jobs.settings import CollectSettings
from bot.oot.culprits.start import WantedSearch, start_search
from tests.harness import UPSTREAM
from tests.oot.culprits.searched import TEST, broken_branch
from tests.oot.culprits.test_story import begin, newest_answer

pytestmark = pytest.mark.logic


@pytest.fixture
def settings(settings):
    """Those of a bot that lists the branches of upstream."""
    collect = CollectSettings(ci=("upstream",))
    return replace(settings, of_features=settings.of_features | {CollectSettings: collect})


async def ask(bot, branch):
    """Begin a search without a pull request, whose commits would keep those of the branch at GitHub."""
    async with bot.store.transaction() as tx:
        wanted = WantedSearch(repo=UPSTREAM, backend="npu", by="alice")
        started = await start_search(tx, bot.context.settings, wanted)
    await bot.settle()
    return started.row["id"]


async def rewrite(branch, *, onto: int, count: int = 3):
    """Push other commits in place of those after one; returns what GitHub has forgotten then."""
    github, bot = branch.github, branch.bot
    bot.clock.advance(60)
    del branch.shas[onto + 1 :]
    for number in range(count):
        after = branch.shas[onto] if number == 0 else None
        message = f"Rewritten {number} (#{900 + number})"
        branch.shas.append(await github.push(UPSTREAM, message=message, onto=after))
        bot.clock.advance(60)
    return git.forget_unreachable(github.state.repo(UPSTREAM))


async def test_a_search_whose_bad_end_is_gone_ends_and_says_so(bot, github):
    branch = await broken_branch(bot, github)
    await ask(bot, branch)
    await branch.answer(9)
    assert branch.asked_names() == ["c5", "c10"]
    old, asked = list(branch.shas), branch.asked()
    gone = await rewrite(branch, onto=7)
    assert set(old[8:]) <= set(gone)
    await bot.settle(horizon=60)
    search = await branch.search()
    assert (search["state"], search["culprit_sha"]) == ("gave_up", None)
    assert search["why"] == (
        f"main was rewritten: {old[15][:7]} is no longer on it; once the job fails on the new commits, begin again"
    )
    for dispatch in asked:  # what ran meanwhile comes too late
        answer = await bot.report(
            dispatch, conclusion="failure", job="test", run_id="77", failed_tests=[TEST]
        )
        assert answer[0] == 200
    await bot.wait(700)
    assert branch.asked() == asked, "nothing more is sent"
    _, page = await bot.get(f"/{UPSTREAM}/bisects/{search['id']}")
    assert "main was rewritten" in page


async def test_the_new_commits_can_be_searched(bot, github):
    branch = await broken_branch(bot, github)
    await ask(bot, branch)
    await branch.answer(9)
    branch.answered += len(branch.asked())
    await rewrite(branch, onto=4, count=5)
    await bot.settle(horizon=60)
    await branch.nightly(9, "failure", failed_tests=[TEST])
    again = await ask(bot, branch)
    await branch.finish(broken_from=6)
    search = await branch.search(again)
    assert (search["state"], search["culprit_sha"]) == ("found", branch.shas[6]), search["why"]


async def test_what_is_rewritten_after_the_bad_end_does_not_matter(bot, github):
    branch = await broken_branch(bot, github)
    await branch.push(3)
    await begin(bot, github)
    await branch.answer(9)
    await rewrite(branch, onto=15)
    await bot.settle(horizon=60)
    search = await branch.finish(broken_from=9)
    assert (search["state"], search["culprit_sha"]) == ("found", branch.shas[9])


@pytest.mark.nightly
async def test_a_culprit_that_is_gone_before_its_files_are_read_is_named_all_the_same(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    while (await branch.search())["state"] == "running":
        if len(branch.order) == 6:  # the last answer is under way
            old = list(branch.shas)
            github.faults.add(method="GET", path=f"/commits/{old[9]}", status=422, times=50)
        await bot.settle(horizon=5)
        await branch.answer(9)
    search = await branch.search()
    assert (search["state"], search["culprit_sha"], search["files"]) == ("found", branch.shas[9], [])


@pytest.mark.nightly
async def test_a_commit_that_github_has_forgotten_is_no_end(bot, github):
    branch = await broken_branch(bot, github)
    c3 = branch.shas[3]
    line = f"CI / test {c3}..{'a' * 40}"
    assert (await begin(bot, github, f"/oot bisect npu {line}"))[0] == ["eyes", "confused"]
    assert f"GitHub knows no commit {'a' * 40}" in await newest_answer(bot)
    compared = [call for call in github.calls if "/compare/" in call.path]
    assert len(compared) <= 2, "it is asked once, and once more with a new token"
    github.faults.add(method="GET", path="/compare/", status=403, body={"message": "No"}, times=9)
    await begin(bot, github, f"/oot bisect npu CI / test {c3}..{'b' * 40}")
    assert "GitHub does not say what it is: No" in await newest_answer(bot)
    assert await bot.rows("bisect") == []
