"""Results that backends report: forged ones, outages, names and ids, any order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sqlite3

import pytest
import structlog

from bot.app import make_app
from bot.database import make_store
from bot.features import FEATURES
from tests.flows.scenarios import post
from tests.harness import L2, L3, L4, UPSTREAM, replace, report_body
from tests.serving import SQLITE, serving

EVIL = "evil/evil"


def suite(dispatch, *, status="completed", conclusion="success", job="build", run_id="900"):
    return report_body(dispatch, status=status, conclusion=conclusion, job=job, run_id=run_id, attempt=1)


async def forged(bot):
    """A report that claims everything that would help it."""
    body = suite(bot.dispatch(L3))
    body["payload"] = {
        "repository": {"full_name": EVIL},
        "pull_request": {"number": 999, "head": {"sha": "e" * 40}, "labels": [{"name": "ciflow/oot/npu"}]},
    }
    body |= {"event_type": "push", "verified_repo": L4, "level": "L4"}
    return await post(bot, body, L3, run_id="901", run_attempt=3)


@pytest.mark.logic
async def test_u1_a_report_lands_on_the_commit_of_its_dispatch_whatever_it_says(bot, github, pull):
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    assert (await forged(bot))[0] == 200
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "success")
    assert {run.head_sha for run in github.check_runs_all(UPSTREAM)} == {pull.head_sha}


@pytest.mark.logic
async def test_u2_a_label_in_the_report_opens_no_check_run(bot, github, pull):
    assert (await forged(bot))[0] == 200
    await bot.settle(horizon=20)
    assert "oot / npu" not in bot.checks(UPSTREAM, pull.head_sha)


@SQLITE
async def test_every_lie_is_flagged_logged_and_counted(bot, pull):
    names = (
        "backend",
        "level",
        "event_type",
        "upstream_repo",
        "pr_number",
        "head_sha",
        "labels",
        "run_id",
        "run_attempt",
    )

    async def counted():
        lines = (await bot.get("/metrics"))[1].splitlines()
        found = {}
        for name in names:
            line = f'ootbot_report_mismatches_total{{field="{name}"}}'
            found[name] = sum(float(each.rpartition(" ")[2]) for each in lines if each.startswith(line))
        return found

    before = await counted()
    with structlog.testing.capture_logs() as logs:
        assert (await forged(bot))[0] == 200
    told = [line for line in logs if "contradicts" in line["event"]]
    assert sorted(line["field"] for line in told) == sorted(names)
    assert {(line["log_level"], line["delivery"]) for line in told} == {
        ("warning", bot.dispatch(L3).client_payload["delivery_id"])
    }
    assert await counted() == {name: count + 1 for name, count in before.items()}
    (row,) = await bot.rows("oot_workflow_job")
    assert set(row["flags"]) == {"no_start", *(f"{name}_mismatch" for name in names)}
    stands = ("upstream_repo", "pr_number", "head_sha", "event_type", "run_id", "run_attempt")
    assert [row[name] for name in stands] == [UPSTREAM, pull.number, pull.head_sha, "pull_request", "901", 3]


@SQLITE
async def test_an_honest_report_contradicts_nothing(bot, github, pull):
    await github.label(pull, "ciflow/oot/npu")
    await github.push_commit(pull)
    await bot.settle()
    assert (await bot.report(bot.dispatch(L3), status="in_progress"))[0] == 200
    (row,) = await bot.rows("oot_workflow_job")
    assert row["flags"] == {}


@pytest.mark.logic
async def test_u3_a_report_is_kept_while_github_cannot_be_reached_and_is_shown_later(bot, github, pull):
    github.faults.add(path=rf"/repos/{UPSTREAM}/", status=502, times=4)
    assert (await bot.report(bot.dispatch(L4), conclusion="failure"))[0] == 200
    again = await bot.report(bot.dispatch(L4), conclusion="failure")
    assert again == (200, {"ok": True, "status": "completed", "duplicate": True})
    await bot.settle(horizon=120)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@SQLITE
async def test_u3_while_the_database_is_locked_nothing_is_half_kept_and_the_retry_succeeds(bot, pull):
    store = make_store(bot.context.settings.database, clock=bot.clock, busy_timeout=0.05, features=FEATURES)
    dispatch = bot.dispatch(L4)
    async with serving(bot, make_app(replace(bot.context, store=store))) as served:
        with contextlib.closing(sqlite3.connect(bot.context.settings.data_dir / "ootbot.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            status, answer = await served.report(dispatch, job="a")
            assert (status, answer["error"]) == (503, "store_unavailable")
            answers = await asyncio.gather(*(served.report(dispatch, job=str(n)) for n in range(10)))
            assert {status for status, _ in answers} == {503}
        assert await bot.rows("oot_workflow_job") == []
        assert await bot.rows("oot_rate") == []
        assert await served.report(dispatch, job="a") == (200, {"ok": True, "status": "completed"})
    await store.close()


@SQLITE
async def test_u15_a_report_is_answered_without_a_call_to_github(bot, github, pull):
    before = len(github.calls)
    await asyncio.gather(*(bot.report(bot.dispatch(L4), job=str(n)) for n in range(20)))
    assert len(github.calls) == before


@SQLITE
async def test_u14_what_was_refused_or_came_in_the_same_moment_does_not_confuse_the_count(bot, pull):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, rate_limit: 5}}}}")
    dispatch = bot.dispatch(L4)
    refused = [await bot.report(dispatch, conclusion="green") for _ in range(20)]
    assert {status for status, _ in refused} == {400}
    answers = await asyncio.gather(*(bot.report(dispatch, job=str(n)) for n in range(12)))
    assert sorted(status for status, _ in answers) == [200] * 5 + [429] * 7
    assert len(await bot.rows("oot_workflow_job")) == 5


STRANGE = [
    "build:cuda",
    "build/cuda",
    "build",
    "3",
    "a b  c",
    "测试 🚀",
    "x" * 300,
    "build\\cuda",
    "<b>&amp;",
    "null",
]


RUNS = ["8d0c4c1e-7b1f-4a52-9d2e-0d6f2b9c41aa", 900, "900:1", "a/b", "0"]


@pytest.mark.logic
async def test_u10_u11_every_name_and_id_is_a_job_of_its_own_and_comes_back_as_it_was(bot, pull):
    dispatch = bot.dispatch(L2)
    told = [(name, name, run) for name, run in itertools.product(STRANGE, RUNS)]
    for workflow, job, run in told:
        body = suite(dispatch, status="in_progress", job=job, run_id=run)
        body["workflow"]["name"] = workflow
        assert (await post(bot, body, L2, run_id=str(run)))[0] == 200
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    shown = [(row["workflow_name"], row["job_name"], row["run_id"]) for row in answer["jobs"]]
    assert sorted(shown) == sorted((workflow, job, str(run)) for workflow, job, run in told)
    await bot.wait(6 * 3600 + 120)
    rows = await bot.rows("oot_workflow_job")
    assert {(row["conclusion"], row["run_attempt"], row["downstream_repo"]) for row in rows} == {
        ("timed_out", 1, L2)
    }


def stories(seed, count):
    """Orders and repetitions of all that can happen to one job; the label is on at the end."""
    chance = random.Random(seed)
    for _ in range(count):
        events = ["begin", "end", "end", "begin", "sweep", "label", "unlabel"]
        chance.shuffle(events)
        yield [*events[: chance.randrange(4, 8)], "end", "label"]


OF_THE_STORY = {  # times, what they leave marked, and whose row it is
    "job_key", "dispatch_id", "delivery_id", "pr_number", "head_sha", "flags", "queue_time", "execution_time",
    "started_at", "completed_at", "received_at", "updated_at",
}  # fmt: skip


SAID = {
    "test_results": {"passed": 3, "failed": 1, "skipped": 2},
    "failed_tests": [{"name": "test_add", "line": 3, "message": "expected 1"}],
    "environment": {"driver": "24.1"},
    "artifact_url": "https://ci.example/1/artifacts",
    "check_run_id": 4711,
}


async def live(bot, github, story):
    """Let one pull request go through a story; returns its row and its check run."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    for event in story:
        if event == "label":
            await github.label(pull, "ciflow/oot/npu")
        elif event == "unlabel":
            await github.unlabel(pull, "ciflow/oot/npu")
        elif event == "sweep":
            await bot.wait(6 * 3600 + 61)
        else:
            status, said = ("completed", SAID) if event == "end" else ("in_progress", {})
            await bot.report(dispatch, status=status, conclusion="failure", **said)
        await bot.settle()
    await bot.wait(20)
    (row,) = [row for row in await bot.rows("oot_workflow_job") if row["pr_number"] == pull.number]
    assert row["head_sha"] == pull.head_sha
    (check,) = [run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / npu"]
    shown = (check.status, check.conclusion, check.output.title.partition(" in ")[0].partition(" (")[0])
    return {name: value for name, value in row.items() if name not in OF_THE_STORY}, shown


@pytest.mark.logic
async def test_any_order_and_repetition_of_reports_sweeps_and_labels_ends_the_same(bot, github):
    expected = await live(bot, github, ["label", "begin", "end"])
    assert expected[1][:2] == ("completed", "neutral")
    for story in stories(seed=4, count=5):
        assert await live(bot, github, story) == expected, story
