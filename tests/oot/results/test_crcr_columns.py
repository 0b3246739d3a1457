"""Rows for the dashboards' table of ClickHouse, made of what backends reported."""

import json
from datetime import UTC, datetime

import pytest

from bot.oot.results.exports import CRCR_COLUMNS, EPOCH, crcr_columns
from tests.harness import L4, START, UPSTREAM
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

# the table's columns with their types, in its order; those with null have none
TABLE = {
    "dynamoKey": str, "status": str, "downstream_repo": str, "upstream_repo": str, "pr_number": int,
    "pytorch_head_sha": str, "delivery_id": str, "workflow_run_url": str, "workflow_name": str, "job_name": str,
    "check_run_id": str, "run_id": str, "run_attempt": int, "conclusion": str, "queue_time": (float, type(None)),
    "execution_time": (float, type(None)), "started_at": datetime, "completed_at": datetime, "total_tests": int,
    "passed_tests": int, "failed_tests": int, "skipped_tests": int, "failed_tests_json": str, "artifact_url": str,
    "environment": str, "downstream_repo_level": str, "event_type": str, "triage_verdict_json": str,
}  # fmt: skip


def checked(row):
    """A row that the table takes."""
    assert list(row) == list(TABLE) == list(CRCR_COLUMNS)
    for name, kind in TABLE.items():
        assert isinstance(row[name], kind), name
    assert row["started_at"].tzinfo is UTC
    assert row["pr_number"] >= 0
    return row


async def exported(bot):
    return [checked(crcr_columns(row)) for row in await bot.rows("oot_workflow_job")]


async def test_a_job_from_its_first_report_to_its_last(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L4)
    bot.clock.advance(40)
    await bot.report(dispatch, status="in_progress", check_run_id=77)
    (row,) = await exported(bot)
    assert (row["status"], row["conclusion"], row["completed_at"]) == ("in_progress", "", EPOCH)
    assert (row["failed_tests_json"], row["environment"], row["artifact_url"]) == ("", "", "")
    assert (row["total_tests"], round(row["queue_time"]), row["execution_time"]) == (0, 40, None)
    bot.clock.advance(60)
    await bot.report(
        dispatch, conclusion="failure", check_run_id=77, artifact_url="https://ci.example/a",
        test_results={"passed": 5, "failed": 1, "skipped": 2}, failed_tests=[{"name": "test_é"}],
        triage_verdict={"schema_version": 1, "category": "infra", "confidence": "low", "summary": "no room"},
        environment={"sdk": "8.1"}, started_at="2026-09-21T14:14:20Z", completed_at="2026-09-21T14:14:50Z",
    )  # fmt: skip
    (row,) = await exported(bot)
    delivery = dispatch.client_payload["delivery_id"]
    assert row["dynamoKey"] == f"{L4}/{delivery}/CI/build/77"
    assert (row["pr_number"], row["pytorch_head_sha"]) == (pull.number, pull.head_sha)
    assert (row["downstream_repo_level"], row["event_type"]) == ("L4", "pull_request")
    assert [row[f"{name}_tests"] for name in ("total", "passed", "failed", "skipped")] == [8, 5, 1, 2]
    assert json.loads(row["failed_tests_json"])[0]["name"] == "test_é"
    assert json.loads(row["environment"]) == {"sdk": "8.1"}
    assert json.loads(row["triage_verdict_json"])["summary"] == "no room"
    assert row["execution_time"] == 60.0
    assert row["started_at"] == datetime(2026, 9, 21, 14, 14, 20, tzinfo=UTC)  # as reported
    assert row["completed_at"] == datetime(2026, 9, 21, 14, 14, 50, tzinfo=UTC)


async def test_a_nightly_has_no_pull_request(bot, github):
    commit = github.state.repo(UPSTREAM).branches["main"]
    workflow = {
        "status": "completed",
        "conclusion": "success",
        "name": "Nightly",
        "run_id": "7",
        "job_name": "all",
    }
    body = {"event_type": "nightly", "delivery_id": commit, "workflow": workflow}
    token = bot.issuer.mint(repository=L4, run_id="7")
    headers = {"Authorization": f"Bearer {token}"}
    assert (await bot.request("POST", "/api/oot/callback", json=body, headers=headers))[0] == 200
    (row,) = await exported(bot)
    assert (row["pr_number"], row["pytorch_head_sha"], row["event_type"]) == (0, commit, "nightly")
    assert row["dynamoKey"] == f"{L4}/{commit}/Nightly/all/"
    assert row["started_at"] == datetime.fromtimestamp(START / 1000, UTC)
