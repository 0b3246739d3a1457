"""What becomes of the usage logs that jobs leave: a row for each job, sums by day, blobs."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
import zipfile
import zlib

import pytest
import sqlalchemy as sa

from bot.demo.github import payloads
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.usage import daily_sums, measured_jobs
from bot.evidence.usage.daily_sums import UsageSums
from bot.evidence.usage.parse.summary import Histogram, decode_bins, unpack_histograms
from bot.evidence.usage.tables import utilization_day, utilization_job
from bot.ingest import retention
from tests.evidence.usage.logs_of_usage import START, metadata, record, text
from tests.harness import UPSTREAM


def histograms_of(day):
    sums = UsageSums()
    sums.add_row(day)
    return sums.histograms()


def busy(*, seconds=300, step=5, gpu=None, memory=40.0, **fields):
    """A log of a machine that works evenly."""
    gpus = () if gpu is None else [("A", gpu), ("B", gpu)]
    lines = [
        record(at, cpu=50.0, memory=memory, gpus=gpus, commands=["python -m pytest test_ops.py"])
        for at in range(0, seconds, step)
    ]
    return text(metadata(workflow_id="", job_id="", **fields), *lines)


@pytest.mark.logic
async def test_a_log_becomes_a_row(bot, usage):
    job = await usage.arrives(busy(gpu=2.0, memory=96.5))
    (row,) = await bot.rows("utilization_job")
    key = ("repository_id", "run_id", "run_attempt", "job_id")
    assert tuple(row[name] for name in key) == (job.run.repo.id, job.run.id, 1, job.id)
    assert (row["status"], row["records"], row["trusted"], row["flags"]) == ("ok", 60, False, [])
    assert (row["base_name"], row["config"], row["runner_label"]) == (
        "build / test (default)",
        "default",
        "npu.8",
    )
    assert (row["cpu_avg"], row["cpu_max"], row["mem_max"], row["gpu_max"]) == (50.0, 50.0, 96.5, 2.0)
    assert (row["idle_gpu_s"], row["gpu_s"], row["oom_risk"]) == (600.0, 600.0, True)
    assert row["peak"] == {"at": START, "percent": 96.5, "commands": ["python -m pytest test_ops.py"]}
    assert row["segments"] == [["python -m pytest test_ops.py", START, START + 295]]
    assert row["blob"].startswith(f"util/{job.run.repo.id}/{job.run.id}/1/")
    assert await bot.context.resource(BLOBS).size(row["blob"])
    days = await bot.rows("utilization_day")
    assert sorted((one["kind"], one["span"], one["jobs"]) for one in days) == [
        ("job", 1, 1), ("job", 7, 1), ("runner", 1, 1), ("runner", 7, 1), ("workflow", 1, 1), ("workflow", 7, 1)
    ]  # fmt: skip
    assert histograms_of(days[0])["memory"] == Histogram.of([96.5] * 60)


@pytest.mark.logic
async def test_the_same_log_twice_changes_nothing(bot, usage):
    job = await usage.arrives(busy(gpu=2.0))
    before = await bot.rows("utilization_job"), await bot.rows("utilization_day")
    bot.clock.advance(3600)
    await usage.fetch(next(iter(job.run.repo.artifacts.values())))
    usage.leave(job, busy(gpu=2.0))
    await usage.collect(job.run)
    assert (await bot.rows("utilization_job"), await bot.rows("utilization_day")) == before


@pytest.mark.logic
async def test_of_several_logs_the_fullest_counts_in_any_order(bot, usage):
    job = await usage.start()
    logs = [busy(seconds=100), busy(seconds=300), busy(seconds=300, memory=41.0)]
    artifacts = [usage.leave(job, log) for log in logs]
    await usage.finish(job)
    for order in itertools.permutations(artifacts):
        async with bot.store.transaction() as tx:
            for table in (utilization_job, utilization_day):
                await tx.run(sa.delete(table))
        for artifact in (*order, order[0]):
            await usage.fetch(artifact)
        (row,) = await bot.rows("utilization_job")
        assert (row["records"], row["source_id"], row["mem_max"]) == (60, artifacts[2].id, 41.0)
        assert "several_logs" in row["flags"]
        days = await bot.rows("utilization_day")
        assert {(one["jobs"], one["records"]) for one in days} == {(1, 60)}
        assert histograms_of(days[0])["memory"] == Histogram.of([41.0] * 60)


@pytest.mark.logic
async def test_sums_are_those_of_all_logs(bot, usage):
    chance, values = random.Random(3), []
    for _ in range(3):
        mine = [round(chance.uniform(0, 100), 2) for _ in range(20)]
        values += mine
        await usage.arrives(text(metadata(), *(record(at * 5, cpu=value) for at, value in enumerate(mine))))
    (day,) = [
        one for one in await bot.rows("utilization_day") if (one["kind"], one["span"]) == ("workflow", 1)
    ]
    assert histograms_of(day)["cpu"] == Histogram.of(values)
    assert (day["jobs"], day["records"]) == (3, 60)


async def test_a_job_that_is_heard_of_later_takes_its_log(bot, github, usage):
    run = await github.start_run(UPSTREAM, event="pull_request", head_branch="topic")
    await bot.settle()
    now = bot.clock.now()
    jobs = [
        github.past_job(
            run, f"test (default, {shard}, 2, npu.8)", ("npu.8",), conclusion="success", times=times
        )
        for shard, times in ((1, (now, now, now + 600_000)), (2, (now, now, now + 900_000)))
    ]
    run.repo.jobs.clear()  # GitHub lists none of them yet
    for job in jobs:
        usage.leave(job, busy(seconds=100 * job.id % 300 + 50))
    await github.finish_run(run, "success")
    await bot.settle(horizon=15)
    found = await bot.rows("utilization_job")
    assert len(found) == 2
    assert all(row["job_id"] < 0 for row in found)
    assert await bot.rows("utilization_day") == []
    run.repo.jobs |= {job.id: job for job in jobs}
    for job in reversed(jobs):
        await github.emit(payloads.workflow_job(github.state, job, "completed"))
        await bot.settle(horizon=15)
    late = sorted(await bot.rows("utilization_job"), key=lambda row: row["job_id"])
    assert [(row["job_id"], row["base_name"], row["machine_s"]) for row in late] == [
        (jobs[0].id, "test (default)", 600), (jobs[1].id, "test (default)", 900),
    ]  # fmt: skip
    (day,) = [one for one in await bot.rows("utilization_day") if (one["kind"], one["span"]) == ("job", 1)]
    assert (day["group_key"], day["jobs"], day["records"]) == (
        "test (default)",
        2,
        sum(row["records"] for row in late),
    )
    assert day["seconds"] == {"npu.8": [1_500, 0]}


async def test_logs_stored_at_the_same_time_lose_nothing(bot, usage):
    await usage.arrives(busy())
    (row,) = await bot.rows("utilization_job")

    async def again(number):
        async with bot.store.transaction() as tx:
            key = {name: row[name] for name in measured_jobs.KEY} | {"job_id": number}
            before = await measured_jobs.lock_job(tx, key)
            mine = row | {"job_id": number, "records": 60 + number}
            if before is None or before["records"] < mine["records"]:
                await measured_jobs.put_job(tx, mine)
                daily_sums.request_days(tx, before, mine)

    await asyncio.gather(*(again(number) for number in (1, 2, 3, 4, 1, 2, 3, 4)))
    await bot.settle()
    days = await bot.rows("utilization_day")
    assert {(one["jobs"], one["records"]) for one in days} == {(5, 5 * 60 + 10)}


@pytest.mark.logic
async def test_ids_in_a_log_only_select_among_the_jobs_of_its_run(bot, usage):
    theirs = await usage.arrives(busy())
    mine = await usage.start()
    usage.leave(mine, text(metadata(workflow_id="5", job_id=str(mine.id)), record(5)), name="usage-log-x")
    usage.leave(mine, text(metadata(job_id=str(theirs.id)), record(5)), name="usage-log-y")
    await usage.finish(mine)
    found = {row["job_id"]: row for row in await bot.rows("utilization_job")}
    assert found[theirs.id]["records"] == 60
    assert "foreign_ids" in found[mine.id]["flags"]
    (other,) = [row for job_id, row in found.items() if job_id < 0]
    assert (other["run_id"], other["job_name"]) == (mine.run.id, "usage-log-y")
    assert {day["jobs"] for day in await bot.rows("utilization_day") if day["kind"] == "job"} == {2}


@pytest.mark.logic
async def test_trusted_and_other_runs_are_summed_apart(bot, usage):
    await usage.arrives(busy(), trusted=True)
    await usage.arrives(busy(seconds=100))
    days = [one for one in await bot.rows("utilization_day") if (one["kind"], one["span"]) == ("runner", 1)]
    assert sorted((one["trusted"], one["records"]) for one in days) == [(False, 20), (True, 60)]


@pytest.mark.logic
async def test_a_log_that_is_not_charted_is_kept_with_its_reason(bot, usage):
    logs = {
        ("no_records", "the file is empty"): "",
        ("no_records", "there is no record"): text(metadata()),
        ("no_records", "there are only error records"): text(metadata(), record(5, error="x")),
        ("refused", "version: the metadata have no data_model_version"): text(
            {"level": "metadata"}, record(5)
        ),
        ("refused", "no metadata: the first line is not a JSON object"): text("{", record(5)),
        ("refused", "version: 2 is not 1.x"): text(metadata(data_model_version=2.0), record(5)),
        ("legacy", "model of 2022"): text({"time": 1, "total_cpu_percent": 3}),
    }
    jobs = {}
    for said, log in logs.items():
        jobs[(await usage.arrives(log)).id] = said
    found = await bot.rows("utilization_job")
    assert {row["job_id"]: (row["status"], row["reason"]) for row in found} == jobs
    assert {(str(row["segments"]), row["blob"]) for row in found} == {("[]", None)}
    assert await bot.rows("utilization_day") == []


@pytest.mark.logic
async def test_secrets_are_masked_before_they_are_stored(bot, usage):
    secret = "ghp_" + "a" * 36
    await usage.arrives(text(metadata(), record(5, commands=[f"python deploy.py --token {secret}"])))
    (row,) = await bot.rows("utilization_job")
    assert row["segments"][0][0] == "python deploy.py --token ***"
    assert "secrets_masked" in row["flags"]
    everything = str(await bot.rows("utilization_job")).encode()
    async for one in bot.context.resource(BLOBS).list():
        everything += zlib.decompress(await bot.context.resource(BLOBS).get(one.key))
    assert secret.encode() not in everything


async def test_an_archive_without_a_usage_log_says_nothing(bot, usage):
    job = await usage.start()
    usage.leave(job, {"other.txt": b"hello", "more.log": b"{}"})
    await usage.finish(job)
    assert await bot.rows("utilization_job") == []
    (fetched,) = [row for row in await bot.rows("ci_fetch") if row["kind"] == "artifact"]
    assert (fetched["state"], fetched["error"]) == ("broken", "it holds no usage log")


@pytest.mark.logic
async def test_the_only_member_that_begins_like_a_log_is_it(bot, usage):
    job = await usage.start()
    usage.leave(job, {"a.txt": b"hello", "monitor.jsonl": busy().encode()})
    await usage.finish(job)
    assert [row["records"] for row in await bot.rows("utilization_job")] == [60]


@pytest.mark.logic
async def test_only_the_usage_log_of_a_large_archive_is_fetched(bot, github, usage):
    job = await usage.start()
    noise = random.Random(1).randbytes(9_000_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("test.log", noise)
        archive.writestr("notes.txt", b"nothing")
        archive.writestr("logs/usage_log.txt", busy())
    github.add_artifact(job.run, f"logs-test-default-1-2-npu.8_{job.id}.zip", packed.getvalue())
    await usage.finish(job)
    assert [row["records"] for row in await bot.rows("utilization_job")] == [60]
    asked = [request.headers.get("Range", "") for request in github.blob_host.requests]
    assert len(asked) == 2  # the directory, and the member
    assert all(part.startswith("bytes=") for part in asked)


async def test_rows_and_sums_go_with_the_records_and_series_earlier(bot, usage):
    await usage.arrives(busy())
    blobs = bot.context.resource(BLOBS)
    bot.clock.advance(91 * 86_400)
    await retention.prune_expired(bot.context, None)
    assert [one.key async for one in blobs.list()] == []
    assert len(await bot.rows("utilization_job")) == 1
    bot.clock.advance(320 * 86_400)
    await retention.prune_expired(bot.context, None)
    assert await bot.rows("utilization_job") == await bot.rows("utilization_day") == []


def test_a_log_of_200_megabytes_is_thinned(tmp_path):
    """Read by the parser child's own function, from an archive, within its limits of memory and size."""
    from bot.evidence.collect.parse.contract import ParserInput
    from bot.evidence.usage.parse import parse_usage

    commands = ["python " + "x" * 9_900]
    path = tmp_path / "archive"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive,
        archive.open("a/usage_log.txt", "w") as log,
    ):
        log.write(text(metadata()).encode())
        for start in range(0, 20_200, 200):
            log.write(
                text(
                    *(record(at, cpu=at % 100, commands=commands) for at in range(start, start + 200))
                ).encode()
            )
    assert path.stat().st_size > 200_000_000
    found = parse_usage.parse_log(ParserInput(path=path, blob=tmp_path / "blob", members=(), options=None))
    assert tuple(found["row"][name] for name in ("status", "records", "flags")) == ("ok", 20_200, ["thinned"])
    assert (
        Histogram.of(at % 100 for at in range(0, 20_200, 2)).bins
        == unpack_histograms(decode_bins(found["row"]["histograms"], 5), [0] * 5)[0].bins
    )
    assert (tmp_path / "blob").stat().st_size < 1_000_000
