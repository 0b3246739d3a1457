"""When the rules change, the stored logs of failed jobs are looked at again, and everything that shows them follows."""

from __future__ import annotations

import pytest

from bot.evidence.collect.blobs import BLOBS
from bot.evidence.logs import reclassify, store_log
from tests.harness import L4, UPSTREAM
from tests.jobs.branch import push

RULE = "[[rule]]\nname = 'own'\npattern = '{}'\nkind = 'infra'\n"


async def rules_change(bot, github, pattern, *, repo=UPSTREAM):
    github.set_file(repo, store_log.OWN_RULES, RULE.format(pattern).encode())
    await bot.wait(reclassify.RULES_READ_EVERY)
    await bot.settle(horizon=60)


async def first(logs, job):
    return (await logs.verdicts(job))[0]


@pytest.mark.logic
async def test_verdicts_counts_grid_and_comment_follow_the_rules(bot, github, logs):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    other = await logs.arrives("FAILED t.py::test_x\n")
    job = await logs.arrives("warn: disk\n##[error]odd\n", trusted=True)
    event, body = push(bot, job.run.head_sha)
    await bot.send(event, body)
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    reported = await github.start_job(run, "build")
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await github.finish_job(reported, "failure", log="warn: disk\n##[error]odd\n")
    await bot.wait(60)
    await rules_change(bot, github, "^warn: (.*)")
    assert [(await first(logs, job))[name] for name in ("rule", "kind", "captures")] == [
        "own",
        "infra",
        ["disk"],
    ]
    assert (await first(logs, other))["rule"] == "pytest failure"
    titles = {one["title"] for one in (await bot.get("/api/ci/failures"))[1]["failures"]}
    assert {"own: disk", "pytest failure: t.py::test_x"} <= titles
    bot.clock.advance(60)  # the grid may be kept for some seconds
    _, grid = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    assert [cell["line"] for line in grid["lines"] for cell in line["cells"].values()] == ["warn: disk"]
    await rules_change(bot, github, "^warn: (.*)", repo=L4)
    (comment,) = [one for one in github.comments(pull) if one.app is not None]
    assert "infra · " in comment.body
    # the verdict that stayed the same is stored once
    assert len([one for one in await bot.rows("ci_verdict") if one["job_id"] == other.id]) == 1
    assert len({one["ruleset"] for one in await bot.rows("ci_verdict") if one["job_id"] == job.id}) == 2


@pytest.mark.logic
async def test_it_takes_up_where_it_was_and_looks_at_each_log_once(bot, github, logs, monkeypatch):
    jobs = [await logs.arrives("##[error]odd\n") for _ in range(3)]
    named = await logs.arrives("FAILED t.py::test_x\nodd\n")
    monkeypatch.setattr(reclassify, "SLICE", 0.0)  # a run ends after one log
    monkeypatch.setattr(reclassify, "PAUSE", 1000.0)
    github.set_file(UPSTREAM, store_log.OWN_RULES, RULE.format("odd$").encode())
    await bot.wait(reclassify.RULES_READ_EVERY)
    assert (await first(logs, jobs[-1]))["rule"] == "own"
    assert (await first(logs, named))["rule"] == "pytest failure"
    (reached,) = await bot.rows("ci_reclassified")
    assert (reached["phase"], reached["job_id"]) == (0, jobs[-1].id)
    for _ in range(8):
        await bot.settle(horizon=1000)
    assert {(await first(logs, job))["rule"] for job in (*jobs, named)} == {"own"}
    assert (await bot.rows("ci_reclassified"))[0]["phase"] == 2
    at = await bot.rows("task")
    await bot.wait(reclassify.RULES_READ_EVERY)
    assert [one for one in await bot.rows("task") if one["kind"] == "reclassify"] == [
        one for one in at if one["kind"] == "reclassify"
    ]


@pytest.mark.logic
async def test_a_log_that_is_gone_keeps_its_verdict(bot, github, logs):
    gone, kept = [await logs.arrives("##[error]odd\n") for _ in range(2)]
    await bot.context.resource(BLOBS).delete(f"log/{gone.run.repo.id}/{gone.id}")
    await rules_change(bot, github, "odd$")
    assert [(await first(logs, job))["rule"] == "own" for job in (gone, kept)] == [False, True]
