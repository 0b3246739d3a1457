"""`ootbot export`: what is stored as one file, for spreadsheets and notebooks."""

from __future__ import annotations

import csv
import io
import time

import pytest

from tests.command import ootbot
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = [SQLITE, pytest.mark.logic]


@pytest.fixture
async def ran(bot, github):
    """A job of upstream's and one of a backend's, of just now."""
    bot.clock.at = round(time.time() * 1000)
    for repo in (UPSTREAM, "org/npu-backend"):
        run = await github.start_run(repo, event="push")
        job = await github.start_job(run, 'test, "quoted"\nname')
        await github.finish_job(job, "failure")
    await bot.settle(horizon=15)
    return bot


async def test_jobs_are_lines_of_csv(ran, tmp_path):
    path = tmp_path / "jobs.csv"
    code, _, err = await ootbot(ran, "export", "jobs", "--days", "2", "--output", str(path))
    assert (code, err) == (0, f"{path}: 2 rows\n")
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert {row["repo"] for row in rows} == {UPSTREAM, "org/npu-backend"}
    assert {row["name"] for row in rows} == {'test, "quoted"\nname'}
    assert rows[0]["conclusion"] == "failure"
    stored = {row["id"]: row["completed_at"] for row in await ran.rows("workflow_job")}
    second = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(stored[int(rows[0]["id"])] / 1000))
    assert rows[0]["completed_at"].startswith(second)
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".part")] == []


async def test_only_some_repositories_and_days(ran):
    code, out, _ = await ootbot(ran, "export", "jobs", "--repo", "PyTorch/*", "--output", "-")
    assert (code, len(list(csv.DictReader(io.StringIO(out))))) == (0, 1)
    code, out, _ = await ootbot(ran, "export", "utilization", "--output", "-")
    assert (code, out.count("\n")) == (0, 1), "the names of the columns alone"
    code, _, err = await ootbot(
        ran, "export", "jobs", "--repo", "org/nothing", "--days", "3", "--output", "-"
    )
    assert (code, err) == (0, "nothing of org/nothing in the last 3 days: --days goes further back\n")


async def test_no_spreadsheet_takes_a_name_for_a_formula(bot, github):
    bot.clock.at = round(time.time() * 1000)
    run = await github.start_run(UPSTREAM, event="push")
    await github.finish_job(await github.start_job(run, '=HYPERLINK("https://evil.example")'), "failure")
    await bot.settle(horizon=15)
    _, out, _ = await ootbot(bot, "export", "jobs", "--output", "-")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["name"].startswith("'=HYPERLINK")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("export", "everything"), "'everything' is not one of"),
        (("export", "jobs", "--days", "0"), "0 is not in the range"),
        (("export", "jobs", "--format", "parquet", "--output", "-"), "Parquet is no text"),
        (("export", "jobs", "--output", "/nowhere/jobs.csv"), "check the path: its folder must exist"),
    ],
)
async def test_mistakes_are_told(bot, arguments, told):
    code, out, err = await ootbot(bot, *arguments)
    assert (code, out) == (2 if "nowhere" not in told and "path" not in told else code, "")
    assert code != 0
    assert told in err


@pytest.mark.nightly
async def test_parquet_keeps_types(ran, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "jobs.parquet"
    code, _, err = await ootbot(ran, "export", "jobs", "--format", "parquet", "--output", str(path))
    assert code == 0, err
    found = duckdb.read_parquet(str(path))
    types = dict(zip(found.columns, map(str, found.types), strict=True))
    assert (types["id"], types["completed_at"], types["name"]) == ("BIGINT", "TIMESTAMP", "VARCHAR")
    rows = found.select("repo", "name", "run_attempt", "runner_name").fetchall()
    assert {row[1] for row in rows} == {'test, "quoted"\nname'}
