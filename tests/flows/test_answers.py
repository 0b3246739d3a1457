"""What a dispatch may start: runs of backends that need not answer, several runs, jobs of two that share a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.scenarios import gate, green
from tests.harness import L2, L3, L4, UPSTREAM
from tests.serving import SQLITE

# A backend that need not answer every dispatch: what it does not run is no failure, and never green.


DAY = 24 * 3600


async def in_force(bot, text):
    """Put another allowlist in force."""
    Path(bot.context.settings.allowlist).write_text(text)
    await bot.wait(61)


async def numbers(bot, backend):
    status, body = await bot.get(f"/api/oot/backends/{backend}")
    assert status == 200
    return body["backend"]


async def state(bot, backend):
    (row,) = [row for row in await bot.rows("oot_dispatch") if row["backend"] == backend]
    return row["state"]


@pytest.mark.logic
async def test_six_silent_dispatches_beside_a_green_run_leave_it_at_100_percent(bot, github):
    await in_force(bot, f"L2: [{L2}]")
    for _ in range(7):
        await github.open_pull(UPSTREAM)
        await bot.settle()
    assert (await bot.report(bot.dispatch(L2)))[0] == 200
    await bot.wait(DAY + 120)
    found = await numbers(bot, L2)
    assert (found["pass_rate"], found["runs"], found["not_run"]) == (1.0, 1, 6)
    assert (found["grade"], found["never_started"]) == ("green", 0)
    await bot.wait(60)  # the daily sums are made
    assert await numbers(bot, L2) == found
    page = (await bot.get(f"/oot/{L2}"))[1]
    assert "6 not run" in page
    assert "1 of 1 that count" in page
    assert "Dispatches nobody answered" not in page
    assert "6 not run" in (await bot.get("/oot"))[1]


@pytest.mark.logic
async def test_the_health_page_still_says_since_when_it_is_silent(bot, github):
    await in_force(bot, f"L2: [{L2}]")
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L2))
    await bot.wait(2 * DAY)
    assert "silent for 2 d" in (await bot.get("/oot"))[1]


@pytest.mark.logic
async def test_an_entry_that_answers_all_is_red_when_silent(bot, github):
    await in_force(bot, f"L2: [{{repo: {L2}, answers: all}}]")
    await github.open_pull(UPSTREAM)
    await bot.wait(DAY + 120)
    found = await numbers(bot, L2)
    assert (found["never_started"], found["not_run"], found["pass_rate"]) == (1, 0, 0.0)


@pytest.mark.logic
async def test_the_terms_are_those_of_the_dispatch(bot, github):
    await in_force(bot, f"L2: [{{repo: {L2}, answers: all}}, {L3}]")
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await in_force(bot, f"L2: [{{repo: {L3}, answers: all}}, {L2}]")
    await bot.wait(DAY + 120)
    assert (await state(bot, L2), await state(bot, L3)) == ("never_started", "not_run")


@pytest.mark.logic
async def test_a_late_report_counts_after_all(bot, github):
    await in_force(bot, f"L2: [{L2}]")
    await github.open_pull(UPSTREAM)
    await bot.wait(DAY + 120)
    assert (await numbers(bot, L2))["not_run"] == 1
    assert (await bot.report(bot.dispatch(L2), conclusion="failure"))[0] == 200
    found = await numbers(bot, L2)
    assert (found["failure"], found["not_run"], found["pass_rate"]) == (1, 0, 0.0)


@pytest.mark.logic
async def test_an_l3_check_begins_with_the_first_report_only(bot, github):
    await in_force(bot, f"L3: {{npu: {L3}}}")
    silent = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    heard = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, heard.head_sha) == {}
    await bot.report(bot.dispatch(L3), status="in_progress")
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, heard.head_sha)["oot / npu"][0] == "in_progress"
    await bot.report(bot.dispatch(L3))
    await bot.wait(DAY + 120)
    assert bot.checks(UPSTREAM, heard.head_sha)["oot / npu"][:2] == ("completed", "success")
    assert bot.checks(UPSTREAM, silent.head_sha) == {}
    page = (await bot.get(f"/{UPSTREAM}/pull/{silent.number}"))[1]
    assert "not run" in page
    assert "never started" not in page


@pytest.mark.logic
async def test_a_run_that_the_dispatch_started_shows_at_once_and_ends_neutral(bot, github):
    github.set_file(L3, ".github/workflows/ci.yml", "on: workflow_dispatch")
    terms = f"{{repo: {L3}, dispatch: workflow, workflow_file: ci.yml}}"
    await in_force(bot, f"L3: {{npu: {terms}}}")
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "queued"
    await bot.wait(DAY + 120)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / npu"]
    assert (status, conclusion) == ("completed", "neutral")
    assert title == "not run: no report within 24 h"


@pytest.mark.logic
async def test_a_backend_that_cannot_be_dispatched_is_shown_all_the_same(bot, github):
    await in_force(bot, f"L3: {{npu: {L3}}}")
    github.uninstall(L3, github.app)
    await bot.wait(60)
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle(horizon=20)
    assert "not installed" in bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][2]


@pytest.mark.logic
async def test_a_promoted_backend_must_answer_whatever_it_was_dispatched_as(bot, github):
    await in_force(bot, f"L3: {{npu: {L3}}}")
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(DAY + 120)
    assert await state(bot, L3) == "not_run"
    await in_force(bot, f"L4: {{npu: {L3}}}")
    await bot.settle(horizon=60)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / gate"][:2] == ("completed", "failure")
    assert checks["oot / npu"][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_reopening_dispatches_again_what_was_not_run(bot, github):
    await in_force(bot, f"L2: [{L2}]")
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(DAY + 120)
    await github.close(pull)
    await bot.settle()
    await github.reopen(pull)
    await bot.settle()
    sent = [one.client_payload["payload"]["action"] for one in github.dispatches]
    assert sent == ["opened", "closed", "reopened"]


@pytest.mark.logic
async def test_a_gate_cannot_wait_for_a_backend_that_need_not_answer(bot):
    await in_force(bot, f"L4: [{{repo: {L4}, answers: some}}]")
    (error,) = (await bot.get("/api/oot/allowlist"))[1]["newest"]["errors"]
    assert "a gate cannot wait" in error


# Two L3 repositories share a device: one label asks for both, and each goes by its own name.


LABEL = "ciflow/oot/npu"
SHARED = f"L3: [{{npu: {L3}}}, {{NPU: {L2}}}]"


@pytest.mark.logic
@SQLITE
async def test_one_label_asks_for_both_and_each_has_its_own_check_run(bot, github):
    await bot.list_backends(SHARED)
    pull = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    assert (await bot.report(bot.dispatch(L2), conclusion="failure"))[0] == 200
    assert (await bot.report(bot.dispatch(L3)))[0] == 200
    await bot.settle()
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert {name: seen[1] for name, seen in checks.items()} == {
        f"oot / {L2}": "neutral",
        f"oot / {L3}": "success",
    }
    for path in ("/oot", "/oot/levels", f"/{UPSTREAM}/pull/{pull.number}"):
        _, page = await bot.get(path)
        assert f">{L2}<" in page
        assert f">{L3}<" in page
    _, summary = await bot.get("/api/oot/summary")
    assert {one["repo"]: one["device"] for one in summary["backends"]} == {L3: "npu", L2: "NPU"}


@pytest.mark.logic
@SQLITE
async def test_a_check_run_that_has_begun_is_renamed_when_another_backend_comes_to_share_its_device(
    bot, github
):
    await bot.list_backends(f"L3: {{npu: {L3}}}")
    pull = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    await bot.report(bot.dispatch(L3), status="in_progress")
    await bot.settle()
    assert list(bot.checks(UPSTREAM, pull.head_sha)) == ["oot / npu"]
    await bot.list_backends(SHARED)
    await bot.report(bot.dispatch(L3))
    await bot.settle(horizon=60)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert {name: seen[:2] for name, seen in checks.items()} == {f"oot / {L3}": ("completed", "success")}


@pytest.mark.logic
@SQLITE
async def test_a_command_names_the_repository(bot, github):
    await bot.list_backends(SHARED)
    pull = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    for repo in (L2, L3):
        await bot.report(bot.dispatch(repo), conclusion="failure")
    await bot.settle()
    github.set_permission(UPSTREAM, "walter", "write")
    bot.clock.advance(5)
    await github.comment(pull, "/oot ignore npu the lab moves", "walter")
    await github.comment(pull, f"/oot ignore {L2} the lab moves", "walter")
    await bot.settle(horizon=60)
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    ignored = {one["repo"] for one in answer["backends"] if one["ignored_by"]}
    assert ignored == {L2}


# A dispatch starts every workflow that listens for it: the gate waits for all runs that GitHub has announced.


async def two_runs(bot, github):
    """Both workflows of the backend that listen; the first has passed."""
    bot.clock.advance(5)
    runs = [await github.start_run(L4, name=name) for name in ("CI", "Slow CI")]
    await green(bot, runs[0].id)
    await github.finish_run(runs[0], "success")
    await bot.settle(horizon=30)
    return runs


async def test_it_waits_for_a_run_that_is_announced_and_has_not_reported(bot, github, pull):
    _, second = await two_runs(bot, github)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]
    assert title == f"being confirmed: run {second.id} of the same dispatch has not reported yet"
    dispatch = bot.dispatch(L4)
    await bot.report(dispatch, status="in_progress", run_id=str(second.id), name="Slow CI")
    await bot.report(
        dispatch, status="completed", conclusion="failure", run_id=str(second.id), name="Slow CI"
    )
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[0] == "failure"


@pytest.mark.logic
@pytest.mark.parametrize(
    ("conclusion", "shown"), [("success", "success"), ("skipped", "success"), ("failure", "failure")]
)
async def test_a_run_that_never_reports_ends_the_waiting_as_it_ends(bot, github, pull, conclusion, shown):
    _, second = await two_runs(bot, github)
    await github.finish_run(second, conclusion)
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[0] == shown


@pytest.mark.logic
async def test_a_run_that_is_announced_late_turns_a_green_gate_back(bot, github, pull):
    first = await github.start_run(L4)
    await green(bot, first.id)
    await github.finish_run(first, "success")
    await bot.settle(horizon=2)
    assert gate(bot, pull.head_sha)[0] == "success"
    await github.start_run(L4, name="Slow CI")
    await bot.settle(horizon=10)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


async def test_runs_of_other_dispatches_and_other_causes_are_not_waited_for(bot, github, pull):
    first = await github.start_run(L4)
    await github.start_run(L4, name="Lint", event="push")
    await github.start_run(L4, name="Nightly", actor="mallory")
    bot.clock.advance(12)
    other = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=2)
    theirs = await github.start_run(L4)
    await github.start_run(L4, name="Slow CI")
    dispatch = bot.dispatch(L4)
    await bot.report(dispatch, status="in_progress", run_id=str(theirs.id))
    bot.clock.advance(60)
    ours = bot.dispatch(L4, at=0)
    for status in ("in_progress", "completed"):
        await bot.report(ours, status=status, run_id=str(first.id))
    await github.finish_run(first, "success")
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[0] == "success"
    assert gate(bot, other.head_sha)[0] is None
