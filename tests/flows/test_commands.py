"""Commands in comments: what each does."""

from __future__ import annotations

import json

import pytest

from tests import harness
from tests.flows.scenarios import AUTHOR, ON_CALL, STRANGER, WRITER, dispatches_to, failed, ours, say
from tests.harness import L1, L3, L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE


@pytest.fixture
def pull(github, pull):
    """A pull request in a repository where WRITER has write access."""
    github.set_permission(UPSTREAM, WRITER, "write")
    return pull


NOWHERE = "http://127.0.0.1:9/nobody"


def check(github, pull, name):
    return [one for one in github.check_runs(UPSTREAM, pull.head_sha) if one.name == name][-1]


async def test_help_is_answered_in_our_comment_to_anybody(bot, github, pull):
    assert await say(bot, github, pull, "/oot help", STRANGER) == ["eyes", "rocket"]
    assert "rerun" in await ours(bot, github, pull)


async def test_status_says_how_a_backend_stands(bot, github, pull):
    await failed(bot, github)
    assert await say(bot, github, pull, "/oot status tpu", STRANGER) == ["eyes", "rocket"]
    assert "tpu: 1 of 1 job failed" in await ours(bot, github, pull)


async def test_rerun_runs_the_failed_backends_again(bot, github, pull):
    run = await failed(bot, github)
    assert await say(bot, github, pull, "/oot rerun", AUTHOR) == ["eyes", "rocket"]
    assert run.run_attempt == 2
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)


@pytest.mark.parametrize(
    ("text", "verb"), [("/oot rerun tpu", "rerun-failed-jobs"), ("/oot rerun TPU --all", "rerun")]
)
async def test_rerun_takes_names_and_all_jobs(bot, github, pull, text, verb):
    await failed(bot, github)
    await say(bot, github, pull, text, ON_CALL)
    assert len([call for call in github.calls if call.path.endswith(f"/{verb}")]) == 1


async def test_run_dispatches_again(bot, github, pull):
    assert await say(bot, github, pull, f"/oot run tpu {L1}") == ["eyes", "rocket"]
    assert (
        len(dispatches_to(github, L4)),
        len(dispatches_to(github, L1)),
        len(dispatches_to(github, L3)),
    ) == (2, 2, 1)
    first, second = dispatches_to(github, L4)
    assert first.client_payload["delivery_id"] != second.client_payload["delivery_id"]
    await bot.report(second, conclusion="failure")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "failure")


async def test_run_dispatches_to_a_backend_listed_after_the_event(bot, github, pull):
    github.add_repo("org/late")
    text = harness.ALLOWLIST + "  gpu: {org/late: [erin]}\n"
    (bot.context.settings.data_dir / "allowlist.yml").write_text(text)
    bot.clock.advance(60)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for gpu, tpu"
    await say(bot, github, pull, "/oot run gpu")
    await bot.settle(horizon=20)
    assert len(dispatches_to(github, "org/late")) == 1
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gpu"][:2] == ("queued", None)


@pytest.fixture
async def held(bot, github):
    """A stranger's pull request, held back from the one backend until somebody approves it."""
    text = f"L4:\n  tpu: {{repo: {L4}, oncalls: [dave], policy: trusted}}\n"
    (bot.context.settings.data_dir / "allowlist.yml").write_text(text)
    bot.clock.advance(60)
    github.set_permission(UPSTREAM, WRITER, "write")
    await bot.settle()
    pull = await github.open_pull(UPSTREAM, author=STRANGER, author_association="NONE")
    await bot.settle()
    return pull


async def test_run_does_not_bypass_the_policy(bot, github, held):
    for text in ("/oot run tpu", "/oot rerun tpu"):
        assert await say(bot, github, held, text) == ["eyes", "confused"]
    assert dispatches_to(github, L4) == []
    assert "ok-to-test" in await ours(bot, github, held)


async def test_cancelling_first_does_not_release_what_is_held(bot, github, held):
    for text in ("/oot cancel tpu", "/oot rerun tpu"):
        assert await say(bot, github, held, text, STRANGER) == ["eyes", "confused"]
    await github.close(held)
    await bot.settle()
    github.faults.add(method="HOOK", path="pull_request.reopened", drop=True)  # it is on its way for long
    await github.reopen(held)
    await github.edit_title(held, "it is open again")
    await bot.settle()
    assert await say(bot, github, held, "/oot rerun tpu", STRANGER) == ["eyes", "confused"]
    await github.rerequest(check(github, held, "oot / tpu").id)
    await bot.settle()
    assert dispatches_to(github, L4) == []


async def test_a_new_dispatch_restarts_the_start_timeout(bot, github, pull):
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    await say(bot, github, pull, "/oot run tpu")
    assert len(dispatches_to(github, L4)) == 2
    await bot.wait(24 * 3600 + 120)
    assert "never started" in bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


async def test_cancel_stops_a_run_and_concludes_its_jobs(bot, github, pull):
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    job = await github.start_job(run, "build")
    await bot.report(bot.dispatch(L4), status="in_progress", run_id=str(run.id))
    await bot.settle()
    assert await say(bot, github, pull, "/oot cancel tpu", AUTHOR) == ["eyes", "rocket"]
    assert (run.conclusion, job.conclusion) == ("cancelled", "cancelled")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "cancelled")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    assert "@dave" not in await ours(bot, github, pull)


async def test_what_was_cancelled_before_it_was_sent_stays_so(bot, github):
    github.faults.add(
        method="POST", path=rf"{L4}/dispatches", status=403, headers={"Retry-After": "900"}, times=9
    )
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert await say(bot, github, pull, "/oot cancel tpu", AUTHOR) == ["eyes", "rocket"]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"] == (
        "completed", "cancelled", f"cancelled: dropped by {AUTHOR} before it was sent")  # fmt: skip
    github.faults.clear()
    for _ in range(4):
        await bot.wait(1000)
    assert dispatches_to(github, L4) == []


async def test_a_job_that_ended_well_while_it_was_cancelled_may_still_say_so(bot, github, pull):
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(L4), status="in_progress", run_id=str(run.id))
    await bot.settle()
    await say(bot, github, pull, "/oot cancel tpu", AUTHOR)
    code, answer = await bot.report(bot.dispatch(L4), run_id=str(run.id))
    assert (code, "duplicate" in answer) == (200, False)
    (row,) = await bot.rows("oot_workflow_job")
    assert (row["conclusion"], row["flags"]["late"]) == ("success", True)


async def test_where_github_refuses_to_cancel_the_answer_says_so_and_the_run_goes_on(bot, github, pull):
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(L4), status="in_progress", run_id=str(run.id))
    await bot.settle()
    message = {"message": "Resource not accessible by integration"}
    github.faults.add(method="POST", path="/cancel$", status=403, body=message, times=2)
    await say(bot, github, pull, "/oot cancel tpu", AUTHOR)
    said = await ours(bot, github, pull)
    assert f"GitHub does not cancel run {run.id} of tpu, so it goes on" in said.replace("\u200b", "")
    assert "is being cancelled" not in said
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][0] == "in_progress"


@pytest.mark.parametrize("text", ["/oot cancel npu\n/oot cancel tpu", "/oot cancel npu tpu"])
async def test_of_two_that_are_cancelled_only_the_one_github_refuses_is_said_to_go_on(
    bot, github, pull, text
):
    await github.label(pull, "ciflow/oot/npu")
    for repo in (L3, L4):
        run = await github.start_run(repo, event="repository_dispatch", name="CI")
        await bot.report(bot.dispatch(repo), status="in_progress", run_id=str(run.id))
    await bot.settle()
    message = {"message": "Resource not accessible by integration"}
    github.faults.add(method="POST", path=f"/{L3}/.*/cancel$", status=403, body=message, times=2)
    await say(bot, github, pull, text)
    rows = sorted(await bot.rows("oot_command"), key=lambda row: row["position"])
    assert "GitHub does not cancel run" in rows[0]["answer"]
    assert "npu, so it goes on" in rows[0]["answer"]
    assert "tpu is being cancelled." in rows[-1]["answer"]
    assert [row["state"] for row in rows] == ["refused", "done"][: len(rows)]


async def test_a_run_is_cancelled_though_the_answer_to_that_is_lost(bot, github, pull):
    await github.label(pull, "ciflow/oot/npu")
    run = await github.start_run(L3, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(L3), status="in_progress", run_id=str(run.id))
    await bot.settle()
    github.faults.add(method="POST", path="/cancel$", when="after", status=502)
    await say(bot, github, pull, "/oot cancel npu", AUTHOR)
    await bot.settle(horizon=30)
    assert run.conclusion == "cancelled"
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "cancelled")


async def test_cancel_of_what_has_ended_changes_nothing(bot, github, pull):
    await failed(bot, github)
    assert await say(bot, github, pull, "/oot cancel", AUTHOR) == ["eyes", "confused"]
    assert "nothing runs here" in await ours(bot, github, pull)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "failure")


async def test_ignore_opens_the_gate_on_this_head_only_and_says_who_and_why(bot, github, pull):
    await failed(bot, github)
    assert await say(bot, github, pull, "/oot ignore tpu the lab moves") == ["eyes", "rocket"]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"] == (
        "completed", "success", "1 blocking backend ignored",
    )  # fmt: skip
    gate = next(run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / gate")
    assert "`wendy`" in gate.output.summary
    assert "the lab moves" in gate.output.summary
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "failure")
    assert "the lab moves" in await ours(bot, github, pull)
    head = await github.push_commit(pull)
    await bot.settle()
    assert bot.checks(UPSTREAM, head)["oot / gate"][:2] == ("in_progress", None)


async def test_ignore_does_not_apply_to_a_later_commit(bot, github, pull):
    await failed(bot, github)
    bot.clock.advance(1)
    address, bot.app.webhook_url = bot.app.webhook_url, NOWHERE
    said = await github.comment(pull, "/oot ignore tpu the lab moves", WRITER)
    late, bot.app.webhook_url = github.deliveries[-1], address
    bot.clock.advance(1)
    head = await github.push_commit(pull)
    await bot.settle()
    await github.redeliver(late)
    await bot.settle()
    assert [reaction.content for reaction in said.reactions] == ["eyes", "confused"]
    assert "has changed since this command was given" in await ours(bot, github, pull)
    assert await bot.rows("oot_ignore") == []
    assert bot.checks(UPSTREAM, head)["oot / gate"][:2] == ("in_progress", None)
    assert await say(bot, github, pull, "/oot ignore tpu the lab moves") == ["eyes", "rocket"]
    assert bot.checks(UPSTREAM, head)["oot / gate"][:2] == ("completed", "success")


# Commands in comments: who may give which, how many, and what is no command.


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
