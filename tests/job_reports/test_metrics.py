"""Metrics of CI's own scripts: what is read, what is left out and why, trends and alerts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.evidence.collect.tables import ci_fetch
from bot.job_reports import script_metrics
from bot.job_reports.feature import JobReportSettings, parse_alerts
from tests import harness
from tests.harness import UPSTREAM
from tests.job_reports.conftest import Jobs, examples, lines

API = f"/api/ci/custom/{UPSTREAM}"
HELPER = Path(__file__).parents[2] / "actions" / "report" / "metrics.py"


def collect(seconds, **fields):
    return {"metric": "pytest.collect", "values": {"seconds": seconds}} | fields


async def test_a_line_becomes_a_row_and_its_day_a_sum(bot, jobs):
    (line,) = examples("Metrics of your own")[:1]
    job = await jobs.leaves("ootbot-metrics-1", {"ootbot-metrics.jsonl": lines(line, collect(20.5))})
    rows = sorted(await bot.rows("ci_metric"), key=lambda one: one["seq"])
    assert [row["metric"] for row in rows] == ["pytest.collect"] * 2
    assert rows[0]["values"] == {"seconds": 12.5, "tests": 8430}
    assert (rows[0]["labels"], rows[0]["at"], rows[0]["source"]) == (
        {"shard": "1"}, 1_790_000_000_123, "run_test.py:main"
    )  # fmt: skip
    days = {(one["value_name"], one["group_key"]): one for one in await bot.rows("ci_metric_day")}
    assert set(days) == {
        ("seconds", ""), ("seconds", "config=default"), ("seconds", "shard=1"), ("tests", ""),
        ("tests", "config=default"), ("tests", "shard=1"),
    }  # fmt: skip
    assert days["seconds", ""]["sample"] == [12.5, 20.5]
    assert (days["seconds", ""]["count"], days["seconds", ""]["sum"]) == (2, 33)
    _, answer = await bot.get(f"{API}?metric=pytest.collect&group=shard")
    assert [(one["group_key"], one["median"]) for one in answer["days"]] == [
        ("shard=1", 12.5),
        ("shard=1", 8430),
    ]
    status, page = await bot.get(f"/{UPSTREAM}/custom?metric=pytest.collect&value=seconds&group=config")
    assert status == 200
    assert f'href="/{UPSTREAM}/commit/{job.run.head_sha}"' in page
    assert "medians by config" in page
    assert f'<a href="/hud/{UPSTREAM}?on=' in page


@pytest.mark.logic
async def test_a_week_above_its_factor_is_told_of_with_its_first_commit(settings, github, issuer, clock):
    alerts, (before, week) = examples("Metrics of your own")[1:]
    chosen = JobReportSettings(ci_metric_alerts=parse_alerts(json.dumps(alerts)))
    chosen = replace(settings, of_features={JobReportSettings: chosen})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        jobs, shas = Jobs(bot, github), []
        for seconds in [*before[-5:], *week]:
            job = await jobs.leaves("ootbot-metrics", {"m.jsonl": lines(collect(seconds))}, minutes=1)
            shas.append(job.run.head_sha)
            bot.clock.advance(86_400 - 61)
        _, answer = await bot.get(API)
        (one,) = answer["metrics"]
        assert (one["regressed"], one["recent"], round(one["change"], 1)) == (True, 13.9, 0.4)
        _, page = await bot.get(f"/{UPSTREAM}/custom?metric=pytest.collect")
        assert f'href="/{UPSTREAM}/commit/{shas[5]}">{shas[5][:12]}' in page
        assert f"since {one['since']}" in page
        _, text = await bot.get("/metrics", headers={"Authorization": "Bearer an admin token of ours"})
        labels = f'metric="pytest.collect",repo="{UPSTREAM}",value="seconds"'
        assert f"ootbot_metric_regressed{{{labels}}} 1.0" in text


def test_the_weeks_of_the_docs_come_to_what_they_say():
    before, week = examples("Metrics of your own")[2]
    days = {day: script_metrics.summarize([value]) for day, value in enumerate([*before, *week], 1_000)}
    found = script_metrics.compare_weeks(days)
    assert (found.now, found.usual, found.since) == (13.9, 10.1, 1_028)
    assert round(1 + found.change, 2) == 1.38


@pytest.mark.logic
async def test_pull_requests_feed_no_trend(bot, jobs):
    await jobs.leaves("ootbot-metrics", {"m.jsonl": lines(collect(1))}, trusted=False)
    assert len(await bot.rows("ci_metric")) == 1
    assert await bot.rows("ci_metric_day") == await bot.rows("ci_metric_trend") == []
    _, page = await bot.get(f"/{UPSTREAM}/custom")
    assert "No trusted run emitted a metric" in page
    _, page = await bot.get(f"/{UPSTREAM}/custom?metric=pytest.collect")
    assert "No trusted run emitted this metric" in page


BAD = {
    "no JSON": "{",
    "the line is no object": [],
    "metric is not of 1 to 80 characters": {"metric": "Über", "values": {"x": 1}},
    "values is no object": {"metric": "a"},
    "values has 0 entries": {"metric": "a", "values": {}},
    "values has 33 entries": {"metric": "a", "values": {f"v{n}": n for n in range(33)}},
    "a value's name is not": {"metric": "a", "values": {"": 1}},
    "x is no number": {"metric": "a", "values": {"x": [1]}},
    "over 16 labels": {"metric": "a", "values": {"x": 1}, "labels": {f"l{n}": "1" for n in range(17)}},
    "the label run_id is reserved": {"metric": "a", "values": {"x": 1}, "labels": {"run_id": "7"}},
    "ts is not a time": {"metric": "a", "values": {"x": 1}, "ts": -5},
    "from is no text": {"metric": "a", "values": {"x": 1}, "from": 7},
}  # fmt: skip


async def test_lines_that_cannot_be_used_are_left_out_with_the_reason(bot, jobs):
    numbers = ['{"metric": "a", "values": {"x": NaN}}', '{"metric": "a", "values": {"x": 1e999}}']
    job = await jobs.leaves("ootbot-metrics", {"m.jsonl": lines(*BAD.values(), *numbers, collect(1))})
    (source,) = await bot.rows("ci_source")
    assert (source["records"], source["problem_count"]) == (1, len(BAD) + 2)
    for number, (reason, problem) in enumerate(zip(BAD, source["problems"], strict=False), 1):
        assert problem["line"] == number
        assert reason in problem["reason"]
    assert await jobs.state(job) == ("parsed", None)
    _, page = await bot.get(f"/{UPSTREAM}/run/{job.run.id}")
    assert "14 left out, 1 were used" in page


@pytest.mark.logic
@pytest.mark.nightly
async def test_limits_of_a_file(bot, jobs):
    many = lines(*({"metric": f"m{n}", "values": {"x": 1}} for n in range(205)))
    await jobs.leaves("ootbot-metrics", {"m.jsonl": many})
    (source,) = await bot.rows("ci_source")
    assert (source["records"], source["problem_count"]) == (200, 5)
    text = "Ω" * 200
    await jobs.leaves(
        "ootbot-metrics", {"m.jsonl": lines({"metric": "t", "values": {"x": text, "y": None, "z": True}})}
    )
    (row,) = [one for one in await bot.rows("ci_metric") if one["metric"] == "t"]
    assert len(row["values"]["x"].encode()) <= 256
    assert row["values"]["x"].endswith("…")
    job = await jobs.leaves("ootbot-metrics", {"m.jsonl": lines(*[collect(1)] * 10_003)})
    (source,) = [one for one in await bot.rows("ci_source") if one["run_id"] == job.run.id]
    assert (source["records"], source["problem_count"], len(source["problems"])) == (10_000, 3, 3)
    job = await jobs.leaves("ootbot-metrics", {"m.jsonl": b" " * (4 * 1024 * 1024 + 1)})
    assert await jobs.state(job) == ("refused", "over 4 MiB of documents")


@pytest.mark.logic
async def test_a_file_that_is_read_again_replaces_what_it_left(bot, jobs):
    job = await jobs.leaves("ootbot-metrics", {"m.jsonl": lines(collect(1), collect(3))})
    before = await bot.rows("ci_metric"), await bot.rows("ci_metric_day")
    (artifact,) = [one for one in job.run.repo.artifacts.values() if one.run is job.run]
    async with bot.store.transaction() as tx:
        fetched = ci_fetch.c.object_id == artifact.id
        await tx.run(sa.update(ci_fetch).where(fetched).values(state="wanted"))
        tx.enqueue("collect", f"{UPSTREAM}#{artifact.id}")
    await bot.settle(horizon=60)
    assert (await bot.rows("ci_metric"), await bot.rows("ci_metric_day")) == before


@pytest.mark.logic
async def test_lines_of_pytorchs_emit_metric_are_read(bot, jobs):
    flat = {
        "metric_name": "TD_skipped", "repo": "evil/repo", "job_id": 5, "calling_file": "run_test.py",
        "calling_function": "main", "calling_module": "x", "timestamp": 1_790_000_000.5, "tests": 7, "files": ["a"],
    }  # fmt: skip
    nested = {"metric_name": "td", "info": '{"seconds": 2.5}', "timestamp": "2026-01-01 00:00:00"}
    await jobs.leaves("ootbot-metrics", {"m.json": lines(flat, nested)})
    rows = sorted(await bot.rows("ci_metric"), key=lambda one: one["seq"])
    assert [(one["metric"], one["values"]) for one in rows] == [
        ("td_skipped", {"tests": 7}),
        ("td", {"seconds": 2.5}),
    ]
    assert (rows[0]["at"], rows[0]["source"]) == (1_790_000_000_500, "run_test.py:main")
    (source,) = await bot.rows("ci_source")
    assert source["repo"] == UPSTREAM


async def test_what_the_helper_writes_is_read(bot, jobs, tmp_path):
    file = tmp_path / "m.jsonl"
    command = [
        sys.executable,
        str(HELPER),
        "pytest.collect",
        "seconds=12.5",
        "note=a b",
        "ok=true",
        "--label",
        "shard=1",
    ]
    subprocess.run(command, check=True, env={"OOTBOT_METRICS": str(file)})
    await jobs.leaves("ootbot-metrics", {"m.jsonl": file.read_bytes()})
    (row,) = await bot.rows("ci_metric")
    assert row["values"] == {"seconds": 12.5, "note": "a b", "ok": True}
    assert (row["labels"], row["source"]) == ({"shard": "1"}, "command line")
    wrong = subprocess.run([*command[:2], "Bad name", "x=1"], check=False, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "the metric's name is not of 1 to 80 characters" in wrong.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x", "write a table"),
        ('{"pytest.collect": 1.2}', "not a metric and one of its values"),
        ('{"a b": 1}', "the factor is above 1"),
        ('{"a b": -2}', "the factor is above 1"),
    ],
)
def test_alerts_that_cannot_be_meant_are_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_alerts(text)


def test_of_many_values_a_day_keeps_evenly_spaced_ones():
    day = script_metrics.summarize([float(one) for one in range(100_000)])
    assert len(day["sample"]) == script_metrics.SAMPLE_MOST
    for share in (0.25, 0.5, 0.9):
        assert abs(script_metrics.quantile([day], share) / 100_000 - share) < 0.02
