"""Secrets in reports of tests and in names of artifacts are masked before a row is made."""

from __future__ import annotations

import pytest

from tests.evidence.tests.reported import JOB, case, jsonl, leave, xml
from tests.harness import UPSTREAM
from tests.serving import SQLITE

TOKEN = "glpat-" + "TOPSECRET" * 3


@pytest.mark.parametrize("kind", ["xml", "jsonl"])
@SQLITE
async def test_no_row_has_a_secret_of_a_report(bot, github, kind):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, JOB)
    report = xml(case("test_add", "failed", message=f"no access with {TOKEN}"))
    if kind == "jsonl":
        line = jsonl(("test_ops.py", "TestOps", "test_add", "failed"), job_id=job.id)
        report = line.replace(
            b'"rerun_number"', f'"outcome_summary": "no access with {TOKEN}", "rerun_number"'.encode()
        )
    github.add_artifact(run, f"wheel with {TOKEN}", b"x")
    await leave(github, run, job, {f"a.{kind}": report}, conclusion="failure")
    await bot.settle(horizon=3600)
    failures = await bot.rows("test_failure")
    assert "no access with ***" in str(failures)
    assert "wheel with ***" in str(await bot.rows("ci_artifact"))
    for table in ("test_failure", "ci_artifact"):
        assert "TOPSECRET" not in str(await bot.rows(table))
