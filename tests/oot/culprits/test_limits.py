"""What goes wrong with a search, and what holds it back: each is said, and nothing is guessed."""

import pytest

from bot.oot.culprits.start import cancel_search
from tests.flows.scenarios import WRITER
from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.oot.culprits.searched import TEST, broken_branch
from tests.oot.culprits.test_story import begin, newest_answer

pytestmark = pytest.mark.logic  # about rules and words; the stories run on both databases

HOUR = 3600
TIMEOUT = 6 * HOUR


def listed(terms="", level="L3"):
    """An allowlist with other terms for the backend that is searched."""
    npu = f"{L3}: {{oncalls: [carol], answers: all{terms}}}"
    if level == "L2":
        return f"L1: [{L1}]\nL2: [{{{L2}: alice}}, {{{npu}}}]\n"
    return f"L1: [{L1}]\nL2: [{{{L2}: alice}}]\nL3: {{npu: {{{npu}}}}}\nL4: {{tpu: {{{L4}: [dave]}}}}\n"


async def test_a_backend_that_does_not_answer_is_asked_twice_and_then_given_up(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    assert branch.asked_names() == ["c15"]
    await bot.wait(TIMEOUT + 60)
    assert branch.asked_names() == ["c15", "c15"]
    await bot.wait(TIMEOUT + 60)
    search = await branch.search()
    assert (search["state"], search["why"]) == ("gave_up", "npu did not answer on 1 commit")
    steps = await bot.rows("bisect_step")
    assert [step["outcome"] for step in steps] == ["silent", "silent"]


@pytest.mark.nightly
async def test_after_three_commits_without_an_answer_it_is_given_up(bot, github):
    """Two are asked at once, so it is four."""
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.answer(9)
    asked = []
    for _ in range(8):
        asked += branch.asked_names()
        branch.answered += len(branch.asked())
        await bot.wait(TIMEOUT + 60)
    search = await branch.search()
    assert (search["state"], search["why"]) == ("gave_up", "npu did not answer on 4 commits")
    assert max(asked.count(name) for name in asked) == 2, "each is tried once more"


@pytest.mark.nightly
async def test_a_late_answer_counts_all_the_same(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await bot.wait(TIMEOUT + 60)
    search = await branch.finish(broken_from=9)
    assert (search["state"], search["culprit_sha"]) == ("found", branch.shas[9])


@pytest.mark.nightly
async def test_a_workflow_that_reports_another_job_is_told_so(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    search = await branch.finish(broken_from=9, job="build")
    assert search["state"] == "gave_up"
    assert search["why"].endswith("could not be confirmed: only CI / build ran")


async def test_a_delisted_backend_ends_its_search_and_a_demoted_one_goes_on(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.answer(9)
    await bot.list_backends(listed(level="L2"))
    await branch.answer(9)
    await bot.settle(horizon=10)
    assert branch.asked_names() == ["c7", "c8"]
    await bot.list_backends(f"L1: [{L1}]\nL2: [{L2}]\n")
    await bot.wait(400)
    search = await branch.search()
    assert (search["state"], search["why"]) == ("gave_up", f"{L3} is not on the allowlist any more")


@pytest.mark.nightly
async def test_a_backend_that_is_listed_at_l1_ends_its_search(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.answer(9)
    await bot.list_backends(f"L1: [{L1}, {L3}]\nL2: [{L2}]\n")
    await bot.wait(400)
    search = await branch.search()
    assert (search["state"], search["why"]) == ("gave_up", f"{L3} is at L1 now: nothing comes back from it")
    assert (await begin(bot, github, f"/oot bisect {L3}"))[0] == ["eyes", "confused"]


async def test_both_ends_have_to_be_commits_of_the_branch_in_order(bot, github):
    branch = await broken_branch(bot, github)
    c3, c9 = branch.shas[3][:10], branch.shas[9][:10]
    fork = await github.push(UPSTREAM, "fork-of-someone")
    for line, words in (
        (f"{c9}..{c3}", f"{c9[:7]} is not before {c3[:7]} on main"),
        (f"{c3}..{c3}", f"both ends are {c3[:7]}"),
        (f"{c3}..{fork}", "is not on main: both ends have to be"),
        (f"{'a' * 40}..{c9}", f"GitHub knows no commit {'a' * 40}"),
        ("abc..def", "abc is not a commit"),
        (f"{c3}..{c9} {c3}..{c9}", "name one range"),
    ):
        reactions, _ = await begin(bot, github, f"/oot bisect npu {line}")
        answer = await newest_answer(bot)
        assert (reactions, words in answer) == (["eyes", "confused"], True), (line, answer)
    assert await bot.rows("bisect") == []


@pytest.mark.nightly
async def test_a_hundred_commands_in_a_minute_begin_one_search(bot, github):
    branch = await broken_branch(bot, github)
    github.set_permission(UPSTREAM, WRITER, "write")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.close(pull)
    await bot.settle()
    for _ in range(100):
        await github.comment(pull, "/oot bisect npu", WRITER)
    await bot.settle()
    assert len(await bot.rows("bisect")) == 1
    assert branch.asked_names() == ["c15"]
    assert len(await bot.rows("oot_command")) == 60


@pytest.mark.nightly
async def test_a_report_that_claims_another_commit_is_about_ours(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    (asked,) = branch.asked()
    asked.client_payload["payload"]["after"] = branch.shas[3]
    await bot.report(asked, conclusion="failure", job="test", run_id="77", failed_tests=[TEST])
    jobs = [row for row in await bot.rows("oot_workflow_job") if row["run_id"] == "77"]
    assert [row["head_sha"] for row in jobs] == [branch.shas[15]]


@pytest.mark.nightly
async def test_the_runs_of_a_day_are_limited_and_the_search_says_until_when(bot, github):
    await bot.list_backends(listed(", bisect: {per_day: 2, parallel: 2}"))
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.answer(9)
    await branch.answer(9)
    await bot.settle(horizon=5)
    search = await branch.search()
    assert (search["state"], search["used"]) == ("waiting", 2)
    assert search["why"].startswith("the 2 runs a day for searches in npu are used up: it goes on at 20")
    await bot.wait((search["waits_until"] - bot.clock.now()) / 1000 + 5)
    assert (await branch.search())["state"] == "running"
    assert len(branch.asked()) == 1


async def test_pull_requests_go_first(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(700)
    await branch.answer(9)
    await bot.wait(200)
    search = await branch.search()
    assert (search["state"], branch.asked_names()) == ("waiting", [])
    assert search["why"].startswith("a pull request has waited for npu for 1")
    assert pull.number == 2
    await bot.report(bot.dispatch(L3), conclusion="success", job="test", run_id="31")
    await bot.wait(200)
    assert branch.asked_names() == ["c5", "c10"]


@pytest.mark.nightly
async def test_a_search_ends_after_its_hours(bot, github):
    await bot.list_backends(listed(", bisect: {max_hours: 1}"))
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await bot.wait(HOUR + 1200)
    search = await branch.search()
    assert search["state"] == "gave_up"
    assert search["why"].startswith("not found within 1 h: it is one of the 15 commits after")


@pytest.mark.nightly
async def test_searches_may_be_off_or_begin_by_themselves_once(bot, github):
    await bot.list_backends(listed(", bisect: off"))
    branch = await broken_branch(bot, github)
    assert (await begin(bot, github))[0] == ["eyes", "confused"]
    assert "bisect: off" in await newest_answer(bot)
    await branch.push(2)
    for at in (16, 17):
        await branch.nightly(at, "failure", failed_tests=[TEST])
    await bot.list_backends(listed(", bisect: auto"))
    await bot.wait(700)
    (search,) = await bot.rows("bisect")
    assert (search["requested_by"], search["state"]) == ("ootbot", "running")
    async with bot.store.transaction() as tx:
        await cancel_search(tx, search["id"], by="a test")
    await bot.wait(700)
    assert len(await bot.rows("bisect")) == 1


@pytest.mark.nightly
async def test_a_command_in_an_issue_is_answered_there(bot, github):
    branch = await broken_branch(bot, github)
    github.set_permission(UPSTREAM, WRITER, "write")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    made = await github.comment(pull, "nothing", WRITER)
    (told,) = [one for one in github.deliveries if one.event == "issue_comment"]
    issue = {name: value for name, value in told.payload["issue"].items() if name != "pull_request"}
    comment = told.payload["comment"] | {"id": made.id, "body": "/oot help\n/oot bisect npu"}
    await bot.send("issue_comment", told.payload | {"issue": issue, "comment": comment})
    await bot.settle()
    (command,) = await bot.rows("oot_command")
    assert (command["verb"], command["state"]) == ("bisect", "done")
    assert (await branch.search())["comment_on"] == pull.number


@pytest.mark.nightly
async def test_a_search_that_is_cancelled_sends_nothing_more(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    search = await branch.search()
    async with bot.store.transaction() as tx:
        await cancel_search(tx, search["id"], by="a test")
    await branch.answer(9)
    await bot.wait(400)
    assert branch.asked_names() == []
    assert (await branch.search())["state"] == "cancelled"
