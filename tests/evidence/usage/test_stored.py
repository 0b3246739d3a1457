"""What becomes of the usage logs that jobs leave, or that backends upload: rows, sums, reports."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
import statistics
import zipfile
import zlib
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.demo.github import payloads
from bot.evidence.collect import uploads
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.usage import daily_sums, measured_jobs
from bot.evidence.usage.daily_sums import UsageSums
from bot.evidence.usage.parse.summary import Histogram, decode_bins, unpack_histograms
from bot.evidence.usage.report import date_of, split_periods, sum_pieces
from bot.evidence.usage.store_usage import ELSEWHERE
from bot.evidence.usage.tables import utilization_day, utilization_job
from bot.ingest import retention
from bot.ingest.tables import records
from bot.jobs.settings import TrunkSettings
from tests import harness
from tests.evidence.usage.conftest import Usage
from tests.evidence.usage.logs_of_usage import START, metadata, record, text
from tests.harness import L3, UPSTREAM
from tests.sums import count_changed

REPORT = f"/api/ci/utilization/{UPSTREAM}/report"


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


async def send(bot, github, dispatch, log, **query):
    payload = dispatch.client_payload
    wanted = {
        "kind": "usage",
        "delivery_id": payload["delivery_id"],
        "run_id": "build-900",
        "workflow": "Nightly",
        "job": "test (1, 2)",
    } | query
    bearer = bot.issuer.mint(repository=L3, repository_id=github.state.repo(L3).id, run_id=wanted["run_id"])
    sent = {"Authorization": f"Bearer {bearer}", uploads.TOKEN_HEADER: payload["callback_token"]}
    status, answer = await bot.request(
        "POST", "/api/oot/uploads", params=wanted, data=io.BytesIO(log.encode()), headers=sent
    )
    assert status == 202, answer
    await bot.settle()


@pytest.mark.logic
async def test_an_uploaded_log_is_a_job_of_another_ci(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    await send(bot, github, dispatch, busy(gpu=2.0))
    (row,) = await bot.rows("utilization_job")
    assert (row["repo"], row["workflow_name"], row["job_name"], row["trusted"]) == (
        L3, "Nightly", "test (1, 2)", False,
    )  # fmt: skip
    assert ELSEWHERE <= row["job_id"] < 2 * ELSEWHERE
    assert row["blob"].startswith("util/")
    _, page = await bot.get(f"/oot/{L3}")
    assert "CPU 50 % avg" not in page  # the repository is not known to be public
    before = await bot.rows("utilization_job"), await bot.rows("utilization_day")
    await send(bot, github, dispatch, busy(gpu=2.0))
    assert (await bot.rows("utilization_job"), await bot.rows("utilization_day")) == before
    await send(bot, github, dispatch, busy(gpu=2.0, seconds=400))
    (row,) = await bot.rows("utilization_job")
    assert (row["records"], row["flags"]) == (80, ["several_logs"])
    assert {day["jobs"] for day in await bot.rows("utilization_day")} == {1}


@pytest.mark.logic
async def test_an_uploaded_log_of_a_job_of_githubs_is_that_jobs(bot, github, usage):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    job = await usage.start(repo=L3)
    usage.leave(job, busy(seconds=100))
    await usage.finish(job)
    await send(bot, github, dispatch, busy(), run_id=str(job.run.id), workflow="CI", job=job.name)
    (row,) = await bot.rows("utilization_job")
    assert (row["job_id"], row["records"], row["flags"]) == (job.id, 60, ["several_logs"])


@pytest.mark.logic
async def test_an_uploaded_log_is_shown_where_its_results_are(bot, github, usage):
    pull = await github.open_pull(UPSTREAM)
    await github.start_run(L3, event="push")  # by which the repository is known to be public
    await bot.settle()
    dispatch = bot.dispatch(L3)
    token = bot.issuer.mint(repository=L3, repository_id=github.state.repo(L3).id, run_id="build-900")
    assert (await bot.report(dispatch, token=token, run_id="build-900"))[0] == 200
    await send(bot, github, dispatch, busy(gpu=2.0))
    (row,) = await bot.rows("utilization_job")
    line = "CPU 50 % avg, memory 40 % at 14:13 while pytest test_ops.py ran, NPUs idle 100 %"
    for address in (f"/oot/{L3}", f"/{UPSTREAM}/pull/{pull.number}", f"/{L3}/upload/1"):
        _, page = await bot.get(address)
        assert line in page, address
        assert f"/{L3}/job/{row['job_id']}/utilization" in page, address
    status, page = await bot.get(f"/{L3}/job/{row['job_id']}/utilization")
    assert status == 200
    assert "2 NPUs" in page


async def test_a_log_of_a_backends_run_is_on_the_pull_request_it_was_for(bot, github, usage):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    job = await usage.start(repo=L3)
    usage.leave(job, busy(memory=97.5))
    await usage.finish(job)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "memory 98 %" not in page
    assert (await bot.report(bot.dispatch(L3), run_id=str(job.run.id)))[0] == 200  # later than the log
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert f"{L3} · {job.name}: CPU 50 % avg, memory 98 %" in page
    async with bot.store.transaction() as tx:
        of_backend = records["repository"].c.full_name == L3
        await tx.run(sa.update(records["repository"]).where(of_backend).values(private=True))
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "memory 98 %" not in page
    _, page = await bot.get(f"/oot/{L3}")
    assert "memory 98 %" not in page


@given(st.integers(20_000, 21_000), st.integers(0, 120), st.sampled_from(["day", "week", "month", "all"]))
@settings(max_examples=60)
def test_periods_are_made_of_each_of_their_days_once(first, length, granularity):
    found = split_periods(first, first + length, granularity)
    assert (found[0].first, found[-1].last) == (first, first + length)
    covered = []
    for period in found:
        days = [day for one in sum_pieces(period) for day in range(one.day, one.day + one.span)]
        assert days == list(range(period.first, period.last + 1))
        covered += days
        assert len({date_of(day).isocalendar()[:2] for day in days}) == 1 or granularity != "week"
        assert len({date_of(day).month for day in days}) == 1 or granularity != "month"
    assert covered == list(range(first, first + length + 1))


def level(values):
    return text(metadata(), *(record(at * 5, cpu=value, memory=value) for at, value in enumerate(values)))


async def test_a_report_is_what_all_records_say(bot, usage):
    chance, values = random.Random(5), []
    for number in range(12):
        mine = [round(chance.uniform(0, 100), 2) for _ in range(30)]
        values.append(mine)
        await usage.arrives(level(mine), trusted=True, name=f"build / test (c{number % 2}, 1, 2, npu.8)")
        if number in {3, 7}:
            bot.clock.advance(5 * 86_400)
    _, answer = await bot.get(REPORT)
    assert [one["group"] for one in answer["groups"]] == ["build / test (c0)", "build / test (c1)"]
    for at, group in enumerate(answer["groups"]):
        (period,) = group["periods"]
        every = sorted(value for day in values[at::2] for value in day)
        assert (period["jobs"], period["records"]) == (6, len(every))
        assert period["cpu"]["avg"] == pytest.approx(statistics.fmean(every), abs=0.005)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p98", 0.98)):
            exact = every[max(0, -int(-share * len(every) // 1) - 1)]
            assert exact - 1 < period["cpu"][name] <= exact
    for granularity in ("day", "week", "month"):
        _, told = await bot.get(f"{REPORT}?group_by=workflow_name&granularity={granularity}")
        (group,) = told["groups"]
        assert sum(one["records"] for one in group["periods"]) == 360
        assert group["periods"][-1]["end"] == "2026-10-01"
    _, told = await bot.get(f"{REPORT}?start=2026-09-22&end=2026-09-26&group_by=runner_label")
    assert [(one["group"], one["periods"][0]["jobs"]) for one in told["groups"]] == [("npu.8", 4)]
    _, told = await bot.get(f"{REPORT}?parent_group=other")
    assert told["groups"] == []
    for wrong in ("start=x", "end=2026-13-01", "start=2026-01-01&end=2025-01-01", "granularity=hour"):
        assert (await bot.get(f"{REPORT}?{wrong}"))[0] == 400


@pytest.mark.logic
async def test_trusted_and_other_runs_are_reported_apart(bot, usage):
    await usage.arrives(busy(), trusted=True)
    await usage.arrives(busy(seconds=100))
    for runs, counted in (("trusted", 60), ("others", 20)):
        _, answer = await bot.get(f"{REPORT}?runs={runs}")
        assert answer["groups"][0]["periods"][0]["records"] == counted
        assert answer["measured"] == 2
    _, page = await bot.get(f"/{UPSTREAM}/utilization")
    assert "1 job</span>" in page


@pytest.mark.logic
async def test_idle_hours_cost_and_what_was_not_measured(settings, github, issuer, clock):
    chosen = replace(settings, of_features={TrunkSettings: TrunkSettings(ci_runner_cost=(("npu.*", 7.2),))})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        usage = Usage(bot, github)
        job = await usage.start(trusted=True)
        bot.clock.advance(1_000)
        usage.leave(job, busy(seconds=1_000, gpu=1.0))
        await usage.finish(job)
        await count_changed(bot.context)
        _, answer = await bot.get(f"{REPORT}?group_by=runner_label")
        (group,) = answer["groups"]
        (numbers,) = group["periods"]
        assert numbers["idle_gpu_hours"] == numbers["gpu_hours"] == pytest.approx(2_000 / 3_600)
        assert numbers["idle_share"] == 1
        assert numbers["cost"] == numbers["wasted"] == pytest.approx(2)
        assert (answer["measured"], answer["jobs"]) == (1, 2)
        _, page = await bot.get(f"/{UPSTREAM}/utilization?by=runner")
        assert "1 of 2 jobs of all runs" in page
        assert "2.00 for idle accelerators" in page


@pytest.mark.logic
async def test_pages_of_a_report(bot, usage, github):
    for day in range(3):
        await usage.arrives(busy(gpu=2.0, memory=40.0 + day), trusted=True)
        bot.clock.advance(86_400)
    await usage.arrives(busy(gpu=50.0), repo=L3, trusted=True)
    for query in ("", "?by=workflow", "?by=runner&sort=idle", "?granularity=week", "?granularity=all&days=7"):
        status, page = await bot.get(f"/{UPSTREAM}/utilization{query}")
        assert status == 200
        assert f'<a href="/{L3}/utilization?days=' in page
    link = page.split('<tr><th scope="row"><a href="', 1)[1].split('"')[0].replace("&amp;", "&")
    status, page = await bot.get(link)
    assert status == 200
    assert "build / test (default)" in page
    assert (
        "No job of trusted branches was measured" in (await bot.get(f"/{UPSTREAM}/utilization?group=none"))[1]
    )
    assert (await bot.get(f"/{UPSTREAM}/utilization?by=nothing"))[0] == 400
    assert (await bot.get("/no/where/utilization"))[0] == 404
    _, page = await bot.get(f"/{UPSTREAM}/utilization?runs=others")
    assert "No job of other runs was measured" in page
    assert "3 jobs of" in page
    async with bot.store.transaction() as tx:
        await tx.run(
            sa.update(records["repository"])
            .where(records["repository"].c.full_name == L3)
            .values(private=True)
        )
    _, page = await bot.get(f"/{UPSTREAM}/utilization")
    assert L3 not in page
    assert (await bot.get(f"/{L3}/utilization"))[0] == 404
    assert (await bot.get(f"/api/ci/utilization/{L3}/report"))[0] == 404


@pytest.mark.logic
async def test_the_jobs_of_a_run_are_listed_worst_first(bot, usage, github):
    run = await github.start_run(UPSTREAM, event="push")
    jobs = []
    for name, memory in (("a", 30.0), ("b", 99.0)):
        job = await github.start_job(run, name, ("npu.8",))
        usage.leave(job, busy(memory=memory, gpu=3.0))
        jobs.append(job)
    usage.leave(jobs[0], "", name="usage-log-nobodys")
    await github.start_job(run, "quiet")
    await usage.finish(jobs[0])
    status, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/utilization")
    assert status == 200
    assert page.index(f"job/{jobs[1].id}/utilization") < page.index(f"job/{jobs[0].id}/utilization")
    assert "not attributed to a job" in page
    assert "the file is empty" in page
    assert "Not measured" in page
    assert "quiet" in page
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/utilization?sort=name")
    assert page.index(f"job/{jobs[0].id}/utilization") < page.index(f"job/{jobs[1].id}/utilization")
    assert (await bot.get(f"/{UPSTREAM}/run/4711/utilization"))[0] == 404
