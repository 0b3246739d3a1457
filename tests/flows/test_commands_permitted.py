"""Commands in comments: who may give which, how many, and what is no command."""

from __future__ import annotations

import json

import pytest

from tests import harness
from tests.flows.scenarios import AUTHOR, ON_CALL, STRANGER, WRITER, dispatches_to, failed, ours, say
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE  # about words and their order, which do not depend on the database


@pytest.fixture
def pull(github, pull):
    """A pull request in a repository where WRITER has write access."""
    github.set_permission(UPSTREAM, WRITER, "write")
    return pull


@pytest.mark.parametrize(
    ("by", "allowed"),
    [
        (WRITER, {"rerun", "run", "cancel", "ignore"}),
        (AUTHOR, {"rerun", "cancel"}),
        (ON_CALL, {"rerun", "run", "cancel"}),
        (STRANGER, set()),
        ("carol", set()),  # on call for another backend
    ],
)
async def test_who_may_do_what(bot, github, pull, by, allowed):
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(L4), status="in_progress", run_id=str(run.id))
    await bot.report(bot.dispatch(L4), conclusion="failure", job="lint", run_id=str(run.id))
    await bot.settle()
    may = set()
    for line in ("/oot ignore tpu because", "/oot rerun tpu", "/oot cancel tpu", "/oot run tpu"):
        if "rocket" in await say(bot, github, pull, line, by):
            may.add(line.split()[1])
    assert may == allowed


async def test_a_refusal_says_what_it_takes(bot, github, pull):
    assert await say(bot, github, pull, "/oot run tpu", STRANGER) == ["eyes", "confused"]
    said = await ours(bot, github, pull)
    assert "mallory may not run tpu" in said
    assert "write access" in said
    assert len(dispatches_to(github, L4)) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/oot dance", "no such command"),
        ("/oot run mars", "no backend is called mars"),
        ("/oot ignore tpu", "which backend and why"),
        ("/oot rerun", "nothing has failed here"),
    ],
)
async def test_an_invalid_command_is_refused_with_the_reason(bot, github, pull, text, why):
    assert await say(bot, github, pull, text) == ["eyes", "confused"]
    assert why in await ours(bot, github, pull)


async def test_text_of_a_command_is_inert_in_our_comment(bot, github, pull):
    await say(bot, github, pull, "/oot run @alice|<b>x</b>#1 [l](https://evil.example)", STRANGER)
    said = await ours(bot, github, pull)
    assert "@alice" not in said
    assert "<b>" not in said.replace("<details>", "")
    assert "](https://evil" not in said


@pytest.mark.parametrize("text", ["`/oot run tpu`", "> /oot run tpu", "try\n```\n/oot run tpu\n```"])
async def test_code_and_quotes_are_no_commands(bot, github, pull, text):
    assert await say(bot, github, pull, text) == []
    assert len(dispatches_to(github, L4)) == 1


async def test_an_edit_is_never_a_command(bot, github, pull):
    said = await github.comment(pull, "nothing", WRITER)
    await github.edit_comment(said, "/oot run tpu")
    await bot.settle()
    assert said.reactions == []
    assert len(dispatches_to(github, L4)) == 1


async def test_what_an_app_says_is_never_a_command(bot, github, pull):
    said = await github.comment(pull, "nothing", WRITER)
    delivery = github.deliveries[-1]
    body = json.loads(json.dumps(delivery.payload))
    body["comment"] |= {"body": "/oot run tpu", "user": {"login": "other[bot]", "id": 5, "type": "Bot"}}
    await bot.send("issue_comment", body)
    await bot.settle()
    assert said.reactions == []
    assert len(dispatches_to(github, L4)) == 1


async def test_the_same_comment_twice_is_carried_out_once(bot, github, pull):
    await failed(bot, github)
    await say(bot, github, pull, "/oot run tpu\n/oot status")
    commented = next(one for one in github.deliveries if one.event == "issue_comment")
    await github.redeliver(commented)
    await bot.send("issue_comment", commented.payload)
    await bot.settle()
    assert len(dispatches_to(github, L4)) == 2
    rows = await bot.rows("oot_command")
    assert [(row["verb"], row["state"]) for row in rows] == [("run", "done"), ("status", "done")]


async def test_a_lost_answer_in_the_middle_does_not_do_it_twice(bot, github, pull):
    github.faults.add(method="POST", path="/reactions$", when="after", status=502, times=3)
    said = await github.comment(pull, "/oot run tpu", WRITER)
    await bot.settle(horizon=300)
    assert [reaction.content for reaction in said.reactions] == ["eyes", "rocket"]
    assert len(dispatches_to(github, L4)) == 2


async def test_every_command_leaves_a_row_that_says_who_what_when_and_what_came_of_it(bot, github, pull):
    await say(bot, github, pull, "/oot ignore tpu the lab moves")
    await say(bot, github, pull, "/oot ignore tpu because I say so", STRANGER)
    done, refused = sorted(await bot.rows("oot_command"), key=lambda row: row["created_at"])
    assert (done["login"], done["verb"], done["state"], done["head_sha"]) == (
        WRITER, "ignore", "done", pull.head_sha,
    )  # fmt: skip
    assert done["text"] == "/oot ignore tpu the lab moves"
    assert (refused["login"], refused["state"]) == (STRANGER, "refused")
    assert done["delivery_id"] in {delivery.guid for delivery in github.deliveries}
    (ignored,) = await bot.rows("oot_ignore")
    assert (ignored["login"], ignored["reason"]) == (WRITER, "the lab moves")


async def test_a_role_is_read_once_in_five_minutes(bot, github, pull):
    for _ in range(3):
        await say(bot, github, pull, "/oot run tpu", STRANGER)
    asked = [call for call in github.calls if call.path.endswith(f"/collaborators/{STRANGER}/permission")]
    assert len(asked) == 1
    github.set_permission(UPSTREAM, STRANGER, "write")
    bot.clock.advance(301)
    assert await say(bot, github, pull, "/oot run tpu", STRANGER) == ["eyes", "rocket"]


async def test_a_person_over_the_limit_is_not_answered(bot, github, pull):
    reactions = [await say(bot, github, pull, "/oot status\n" * 5, STRANGER) for _ in range(14)]
    assert reactions[0] == ["eyes", "rocket"]
    assert reactions[-1] == []


async def test_over_the_limit_of_a_pull_request_only_writers_are_answered(bot, github, pull):
    crowd = [await say(bot, github, pull, "/oot status\n" * 5, f"stranger-{number}") for number in range(22)]
    assert crowd[0] == ["eyes", "rocket"]
    assert crowd[-1] == []
    assert await say(bot, github, pull, "/oot status") == ["eyes", "rocket"]


async def test_a_comment_costs_one_reaction_of_a_kind_however_many_commands_it_holds(bot, github, pull):
    assert await say(bot, github, pull, "/oot status\n/oot dance\n/oot help\n") == [
        "eyes",
        "rocket",
        "confused",
    ]
    assert len([call for call in github.calls if call.path.endswith("/reactions")]) == 3


async def test_reactions_leave_the_reserve_to_gates_and_delay_no_command(github, issuer, clock, settings):
    """Strangers comment until the budget is short: commands are carried out, reactions wait, a gate is written."""
    sparse = harness.replace(settings, writes_per_min=8)
    async with harness.running(sparse, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        pull = await github.open_pull(UPSTREAM, author=AUTHOR)
        await bot.settle(horizon=60)
        for number in range(40):
            await github.comment(pull, "/oot dance", f"stranger-{number}")
        await bot.settle()
        assert {row["state"] for row in await bot.rows("oot_command")} == {"refused"}
        later = await github.open_pull(UPSTREAM, author=AUTHOR)
        await bot.settle(horizon=60)
        assert "oot / gate" in bot.checks(UPSTREAM, later.head_sha)


async def test_a_recorded_command_is_carried_out_even_over_the_limit(bot, github, pull):
    github.faults.add(method="GET", path=r"/collaborators/", status=502, times=2)
    said = await github.comment(pull, "/oot run tpu", WRITER)
    await bot.settle()
    for _ in range(12):
        await github.comment(pull, "/oot help\n" * 5, WRITER)
    await bot.settle(horizon=300)
    assert [reaction.content for reaction in said.reactions] == ["eyes", "rocket"]
    assert len(dispatches_to(github, L4)) == 2


async def test_on_a_closed_pull_request_nothing_is_run(bot, github, pull):
    await github.close(pull)
    await bot.settle()
    before = len(github.dispatches)
    assert await say(bot, github, pull, "/oot run tpu") == ["eyes", "confused"]
    assert len(github.dispatches) == before


async def test_without_comments_only_reactions_answer(github, issuer, clock, settings):
    chosen = harness.replace(settings, comment="off")
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        pull = await github.open_pull(UPSTREAM, author=AUTHOR)
        await bot.settle()
        assert await say(bot, github, pull, "/oot help", STRANGER) == ["eyes", "rocket"]
        assert await say(bot, github, pull, "/oot dance", STRANGER) == ["eyes", "confused"]
        assert await ours(bot, github, pull) == ""


async def test_a_command_on_an_issue_or_elsewhere_is_ignored(bot, github, pull):
    elsewhere = await github.open_pull(L4, author=AUTHOR)
    assert await say(bot, github, elsewhere, "/oot help") == []
