"""A backend breaks at night over 16 commits: from the command to the culprit's name, also if the bot ends at any moment."""

import contextlib

import pytest
import sqlalchemy as sa

from bot.core.errors import StoreUnavailable
from bot.oot.culprits import advance
from bot.queue.tasks import Task, task
from tests import harness
from tests.flows.scenarios import STRANGER, WRITER, ours, say
from tests.harness import L3, UPSTREAM
from tests.oot.culprits.searched import SPELLED, TEST, broken_branch


async def begin(bot, github, line="/oot bisect npu", by=WRITER):
    """Give the command on a pull request that is merged; returns the reactions."""
    github.set_permission(UPSTREAM, WRITER, "write")
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await github.close(pull)
    await bot.settle()
    return await say(bot, github, pull, line, by), pull


async def newest_answer(bot):
    """What the newest command was answered; a database returns rows in any order."""
    return max(await bot.rows("oot_command"), key=lambda row: row["comment_id"])["answer"]


async def test_the_culprit_is_found_and_nothing_but_the_search_is_touched(bot, github):
    branch = await broken_branch(bot, github)
    reactions, _ = await begin(bot, github)
    assert reactions == ["eyes", "rocket"]
    search = await branch.finish(broken_from=9)
    assert search["state"] == "found"
    assert search["why"] == (
        f"npu: CI / test is broken by #109 ({branch.shas[9][:7]}, alice): "
        f"passed on its parent {branch.shas[8][:7]} in 1 run, failed here in 2."
    )
    assert (search["culprit_sha"], search["confidence"]) == (branch.shas[9], "commit")
    assert branch.order == ["c15", "c5", "c10", "c7", "c8", "c9", "c9"]
    assert search["used"] == 7
    (command,) = await bot.rows("oot_command")
    assert command["answer"].endswith(f"/{UPSTREAM}/bisects/{search['id']}")
    assert all(bot.checks(UPSTREAM, sha) == {} for sha in branch.shas)


@pytest.mark.logic
async def test_a_step_is_a_push_that_nobody_made(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github, f"/oot bisect npu {SPELLED}")
    pushes = len(await bot.rows("push"))
    (asked,) = branch.asked()
    sent = asked.client_payload
    search = await branch.search()
    assert sent["bisect"] == {
        "id": search["id"],
        "signal": "CI / test",
        "purpose": "confirm_bad",
        "test": SPELLED,
    }
    assert (asked.event_type, sent["event_type"], sent["payload"]["ref"]) == (
        "push",
        "push",
        "refs/heads/main",
    )
    assert (sent["payload"]["after"], sent["payload"]["before"]) == (branch.shas[15], branch.shas[14])
    assert "bisect" not in sent["payload"]
    (delivery,) = [row for row in await bot.rows("delivery") if row["source"] == "bisect"]
    assert (delivery["guid"], delivery["state"]) == (sent["delivery_id"], "ignored")
    (dispatch,) = [row for row in await bot.rows("oot_dispatch") if row["delivery_id"] == delivery["guid"]]
    assert (dispatch["pr_number"], dispatch["head_sha"], dispatch["level"]) == (None, branch.shas[15], 3)
    headers = {"Authorization": "Bearer an admin token of ours"}
    status, _ = await bot.request("POST", f"/api/admin/deliveries/{delivery['guid']}/replay", headers=headers)
    assert status in {200, 202, 404}
    await bot.settle()
    assert len(branch.asked()) == 1
    assert len(await bot.rows("push")) == pushes


@pytest.mark.logic
async def test_a_commit_that_cannot_be_built_is_named_with_its_neighbour(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github, f"/oot bisect npu {SPELLED}")
    search = await branch.finish(broken_from=9, builds=lambda at: at != 8)
    c8, c9 = branch.shas[8:10]
    assert (search["state"], search["confidence"], search["suspects"]) == ("found", "range", [c8, c9])
    assert f"is broken by {c8[:7]} or {c9[:7]}: {c8[:7]} cannot be tested" in search["why"]
    assert branch.order == ["c15", "c5", "c10", "c7", "c8", "c9", "c9"]


@pytest.mark.logic
async def test_results_of_other_runs_count_at_once(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.answer(9)
    assert branch.asked_names() == ["c5", "c10"]
    await branch.nightly(8, "success")
    for _ in range(3):  # c10 to c15 may be it as well
        await branch.nightly(9, "failure", failed_tests=[TEST])
    await bot.settle(horizon=5)
    search = await branch.search()
    assert search["state"] == "found"
    assert search["culprit_sha"] == branch.shas[9]
    assert search["used"] == 3


@pytest.mark.logic
@pytest.mark.nightly
async def test_commits_of_one_push_are_a_range(bot, github):
    branch = await broken_branch(bot, github, commits=3)
    async with bot.store.transaction() as tx:
        import sqlalchemy as sa

        from bot.jobs.tables import branch_commit

        mine = branch_commit.c.sha == branch.shas[1]
        await tx.run(sa.update(branch_commit).where(mine).values(folded=2))
    await begin(bot, github)
    search = await branch.finish(broken_from=1)
    assert (search["state"], search["confidence"]) == ("found", "range")
    assert "2 commits came with another one and cannot be told apart" in search["why"]


@pytest.mark.logic
async def test_a_bad_end_that_passes_again_is_flaky(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    search = await branch.finish(broken_from=99)
    assert (search["state"], search["used"]) == ("not_found", 1)
    assert search["why"] == f"flaky, not broken: it passed on {branch.shas[15][:7]} when it was run again"


@pytest.mark.logic
@pytest.mark.nightly
async def test_a_good_end_that_fails_has_the_search_look_before_it(bot, github):
    branch = await broken_branch(bot, github)
    await branch.push(4)
    await branch.nightly(19, "failure", failed_tests=[TEST])
    good, bad = branch.shas[10], branch.shas[19]
    await begin(bot, github, f"/oot bisect npu {good[:10]}..{bad[:10]}")
    search = await branch.finish(broken_from=5)
    assert (search["state"], search["culprit_sha"], search["moved"]) == ("found", branch.shas[5], 1)
    assert search["good_sha"] == branch.shas[0]


@pytest.mark.logic
@pytest.mark.nightly
async def test_the_same_search_is_not_begun_twice(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    reactions, _ = await begin(bot, github)
    assert reactions == ["eyes", "rocket"]
    assert "is being searched already" in await newest_answer(bot)
    assert len(await bot.rows("bisect")) == 1
    assert len(branch.asked()) == 1


@pytest.mark.logic
async def test_strangers_and_unknown_names_are_refused_with_the_reason(bot, github):
    await broken_branch(bot, github)
    for line, by, words in (
        ("/oot bisect npu", STRANGER, "takes write access or being on call for npu"),
        ("/oot bisect npa", WRITER, "the nearest are: npu"),
        ("/oot bisect npu TestMatmul.test_bf61", WRITER, "nearest names are: TestMatmul.test_bf16"),
        ("/oot bisect npu CI / tset", WRITER, "CI / test"),
        ("/oot bisect", WRITER, "say which backend"),
        ("/oot bisect watch/l1", WRITER, "is at L1"),
        ("/oot bisect upstream", WRITER, "has a result on main"),
    ):
        reactions, pull = await begin(bot, github, line, by)
        assert reactions == ["eyes", "confused"], line
        assert words in await newest_answer(bot), line
        assert "bisect" in await ours(bot, github, pull), line
    assert await bot.rows("bisect") == []


@pytest.mark.logic
async def test_an_on_call_without_write_access_may_search_their_backend_only(bot, github):
    await broken_branch(bot, github)
    assert (await begin(bot, github, "/oot bisect tpu", "carol"))[0] == ["eyes", "confused"]
    assert (await begin(bot, github, "/oot bisect npu", "carol"))[0] == ["eyes", "rocket"]
    (search,) = await bot.rows("bisect")
    assert (search["requested_by"], search["backend"]) == ("carol", L3)


async def claimed(bot, search):
    """The task of a search, as a worker has it."""
    row = next(row for row in await bot.rows("task") if (row["kind"], row["key"]) == ("bisect", search["id"]))
    return Task({name: row[name] for name in ("id", "kind", "key", "created_at", "attempts", "cause")})


@pytest.mark.nightly
async def test_a_search_goes_on_in_the_next_process(bot, settings, github, issuer, clock):
    """Each round is played by another process; of the one before, tasks are left claimed."""
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    for _ in range(8):
        async with harness.running(
            settings, github=github, issuer=issuer, app=github.app, clock=clock
        ) as next_bot:
            branch.bot = next_bot
            await next_bot.settle(horizon=5)
            await branch.answer(9)
            search = await branch.search()
            async with next_bot.store.transaction() as tx:  # killed in the middle of whatever is due
                await tx.run(
                    sa.update(task)
                    .where(task.c.state == "waiting", task.c.kind.in_(["bisect", "dispatch"]))
                    .values(state="running", owner="gone", lease_until=tx.now)
                )
        if search["ended_at"]:
            break
    assert (search["state"], search["culprit_sha"]) == ("found", branch.shas[9])
    sent = [one.client_payload["delivery_id"] for one in github.dispatches if "bisect" in one.client_payload]
    assert len(sent) == len(set(sent)) == search["used"] == 7


async def test_what_is_interrupted_before_its_commit_leaves_nothing_behind(bot, github):
    branch = await broken_branch(bot, github)
    await begin(bot, github)
    await branch.answer(9)
    search = await branch.search()
    mine = await claimed(bot, search)
    before = {name: len(await bot.rows(name)) for name in ("bisect_step", "oot_dispatch", "delivery")}

    class Failing:
        """A context whose transactions fail at the last moment."""

        def __init__(self):
            self.settings, self.store, self.clock = bot.context.settings, self, bot.clock

        def transaction(self):
            return _failing(bot.store.transaction())

    for _ in range(3):
        with contextlib.suppress(StoreUnavailable):
            await advance.advance_search(Failing(), mine)
    assert before == {name: len(await bot.rows(name)) for name in before}
    for _ in range(3):
        await advance.advance_search(bot.context, mine)
    assert {name: len(await bot.rows(name)) for name in before} == before
    assert branch.asked_names() == ["c5", "c10"]


def _failing(transaction):
    @contextlib.asynccontextmanager
    async def made():
        async with transaction as tx:
            yield tx
            raise StoreUnavailable("killed")

    return made()
