"""From the end of a job to its verdict: downloaded, parsed in the child, stored, counted once however often it comes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bot.evidence.logs import failure_costs, reclassify, store_log
from bot.evidence.logs.feature import LogsSettings
from tests.evidence.logs.jobs import Logs
from tests.harness import L3, UPSTREAM, running

DAY = 86_400_000


def line(bot, text):
    """A line of a log, written now."""
    at = datetime.fromtimestamp(bot.clock.now() / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.1234567Z {text}\n"


@pytest.mark.logic
async def test_a_failed_job_gets_its_verdict_with_step_and_signature(bot, logs):
    job = await logs.arrives(line(bot, "+ pytest") + line(bot, "FAILED tests/test_a.py::test_b - boom"))
    (found,) = await logs.verdicts(job)
    assert (found["rule"], found["kind"]) == ("pytest failure", "test")
    assert (found["captures"], found["context"]) == (["tests/test_a.py::test_b"], ["+ pytest"])
    (log,) = await bot.rows("ci_log")
    assert (log["lines"], log["blob"]) == (2, f"log/{job.run.repo.id}/{job.id}")
    (signature,) = await bot.rows("ci_signature")
    assert signature["title"] == "pytest failure: tests/test_a.py::test_b"


@pytest.mark.logic
async def test_three_states_are_told_apart(bot, github, logs):
    nothing = await logs.arrives("all is well\n")
    github.faults.add(path="/logs$", status=410)
    absent = await logs.arrives("##[error]gone\n")
    assert [(v["rule"], v["kind"]) for v in await logs.verdicts(nothing)] == [(None, "none")]
    assert await logs.verdicts(absent) == []
    assert len(await bot.rows("ci_log")) == 1
    assert await bot.rows("ci_signature") == []


@pytest.mark.logic
async def test_failures_are_counted_by_signature_and_day_each_once(bot, github, logs):
    for branch in ("a", "a", "b"):
        job = await logs.arrives("FAILED t.py::test_x - in 1 s\n", branch=branch)
        await logs.again(job)
    await logs.arrives("FAILED t.py::test_x - in 2 s\n", repo=L3, trusted=True)
    days = await bot.rows("ci_signature_day")
    counts = {d["family"]: (d["jobs"], d["prs"], d["trusted_jobs"], d["repos"]) for d in days}
    assert counts == {"public": (4, 2, 1, 2)}
    assert [s["jobs_total"] for s in await bot.rows("ci_signature")] == [4]


async def test_another_verdict_moves_the_count_and_the_former_one_stays_until_its_log_goes(bot, logs):
    job = await logs.arrives("FAILED t.py::test_x\n##[error]y\n")
    async with bot.store.transaction() as tx:
        rule = "[[rule]]\nname = 'new'\npattern = 'y$'\n"
        await store_log.store_version(tx, store_log.own_source(UPSTREAM), rule, error=None, count=1)
    await logs.again(job)
    assert (await logs.verdicts(job))[0]["rule"] == "new"
    assert {s["rule"] for s in await bot.rows("ci_signature")} == {"new"}
    assert len({v["ruleset"] for v in await bot.rows("ci_verdict")}) == 2
    bot.clock.at += 31 * DAY
    await failure_costs.prune_logs(bot.context)
    assert {v["current"] for v in await bot.rows("ci_verdict")} == {True}
    bot.clock.at += 400 * DAY
    await failure_costs.prune_logs(bot.context)
    assert await bot.rows("ci_verdict") == await bot.rows("ci_log") == []
    assert await bot.rows("ci_signature") == await bot.rows("ci_signature_day") == []


@pytest.mark.logic
async def test_rules_of_the_settings_come_first_and_a_wrong_file_changes_nothing(
    settings, github, issuer, clock, tmp_path
):
    path = tmp_path / "mine.toml"
    path.write_text("[[rule]]\nname = 'mine'\npattern = 'boom'\nrepos = ['pytorch/*']\n")
    chosen = replace(settings, of_features={LogsSettings: LogsSettings(ci_log_rules=(str(path),))})
    log = "FAILED t.py::test_x - boom\n"
    async with running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        logs = Logs(bot, github)
        await bot.wait(reclassify.RULES_READ_EVERY)
        assert (await logs.verdicts(await logs.arrives(log)))[0]["rule"] == "mine"
        assert (await logs.verdicts(await logs.arrives(log, repo=L3)))[0]["rule"] == "pytest failure"
        path.write_text("[[rule]]\nname = 'ahead'\npattern = 'a(?=b)'\n")
        await bot.wait(reclassify.RULES_READ_EVERY)
        assert (await logs.verdicts(await logs.arrives(log)))[0]["rule"] == "mine"
        async with bot.store.read() as tx:
            newest = {row["source"]: row for row in await store_log.newest_versions(tx)}
        assert "rule 1 'ahead'" in newest[str(path)]["error"]


@pytest.mark.logic
async def test_a_repository_has_rules_of_its_own(bot, github, logs):
    first = await logs.arrives("FAILED t.py::test_x - boom\n")
    assert (await logs.verdicts(first))[0]["rule"] == "pytest failure"
    github.set_file(UPSTREAM, store_log.OWN_RULES, b"[[rule]]\nname = 'own'\npattern = 'boom'\n")
    await bot.wait(reclassify.RULES_READ_EVERY)
    second = await logs.arrives("FAILED t.py::test_x - boom\n")
    assert (await logs.verdicts(second))[0]["rule"] == "own"
