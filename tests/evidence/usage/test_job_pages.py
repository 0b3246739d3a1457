"""What people and programs see of one job: its page with the chart, JSON, CSV, a line on other pages."""

from __future__ import annotations

import csv
import io
import json
import re

import sqlalchemy as sa

from bot.evidence.collect.blobs import BLOBS
from bot.ingest.tables import records
from tests.evidence.usage.logs_of_usage import START, metadata, record, text
from tests.evidence.usage.test_stored import busy
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE


def story():
    """Six hours, a hole, a spike of one record, two accelerators of which one idles, a hostile command."""
    lines = []
    for at in range(0, 21_600, 5):
        if 7_200 <= at < 9_000:
            continue
        commands = ["python -m tools.stats.monitor"]
        if at < 7_200:
            commands.append("python /w/test_ops.py --shard-id 1")
        if 6_000 <= at < 12_000:
            commands.append("python <script>.py")
        spike = at == 15_000
        lines.append(
            record(
                at, cpu=100.0 if spike else 40.0, memory=97.2 if at == 6_500 else 50.0, gpus=[("A", 80.0), ("B", 1.0)],
                commands=commands,
            )
        )  # fmt: skip
    return text(metadata(workflow_id="", job_id=""), *lines)


def path_of(page, name):
    return re.search(rf'<title>{name}</title><path class="most" d="([^"]*)"', page)[1]


async def page_of(bot, job, query=""):
    status, page = await bot.get(f"/{UPSTREAM}/job/{job.id}/utilization{query}")
    assert status == 200
    return page


async def test_a_job_is_charted(bot, usage):
    job = await usage.arrives(story())
    page = await page_of(bot, job)
    assert "Memory was fullest at <b>" in page
    assert "97.2 %" in page
    assert "NPUs idle" in page
    assert "the shortest" not in page
    assert "test_ops.py" in page
    assert "&lt;script&gt;.py" in page
    assert "<script>" not in page
    assert "tools.stats.monitor" not in page
    assert "tools.stats.monitor" in await page_of(bot, job, "?all=1")
    assert page.count("<title>no data</title>") == 1
    assert len(page) < 120_000
    paths = {name: path_of(page, name) for name in ("cpu", "memory", "gpu_1_util")}
    assert all(paths.values())
    assert "v-144" in paths["cpu"] or "v144" in paths["cpu"]  # from 40 to 100 in one column of 720


async def test_parts_and_series_are_chosen_by_links(bot, usage):
    job = await usage.arrives(story())
    page = await page_of(bot, job)
    links = re.findall(r'<a href="([^"]+)">(?:First half|Second half)</a>', page)
    assert len(links) == 2
    for link in links:
        assert (await bot.get(link.replace("&amp;", "&")))[0] == 200
    half = await page_of(bot, job, f"?from={START}&to={START + 3_600}&series=gpu_1_util,memory,nonsense")
    assert "Whole job" in half
    assert path_of(half, "gpu_1_util")
    assert "<title>cpu</title>" not in half
    assert "15.0" not in half
    assert (await bot.get(f"/{UPSTREAM}/job/{job.id}/utilization?from=x"))[0] == 400
    assert "Whole job" not in await page_of(bot, job, f"?from={START - 9_999}&to={START + 99_999}")


async def test_steps_are_drawn_over_the_chart(bot, usage):
    job = await usage.arrives(busy())
    page = await page_of(bot, job)
    assert 'aria-label="Steps"' in page
    assert 'class="step' in page


async def test_more_than_a_hundred_percent_is_clipped_and_marked(bot, usage):
    job = await usage.arrives(text(metadata(), record(5, cpu=480.0), record(10, cpu=20.0), record(15)))
    page = await page_of(bot, job)
    assert "over 100 %" in page
    assert "480\N{NO-BREAK SPACE}%" in page
    assert " -" not in path_of(page, "cpu").split("l")[0]


async def test_a_job_without_log_says_so(bot, github, usage):
    job = await usage.start()
    await bot.settle()
    assert "the job is not over" in await page_of(bot, job)
    await usage.finish(job)
    assert "Utilization: absent." in (page := await page_of(bot, job))
    assert "the job left no usage log" in page
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert "not measured: the job left no usage log" in page
    other = await usage.start()
    usage.leave(other, {"usage_log.txt": bytes(12_000_000)})
    await usage.finish(other)
    assert "zip ratio" in await page_of(bot, other)
    refused = await usage.arrives(text(metadata(data_model_version=2.0), record(5)))
    page = await page_of(bot, refused)
    assert "Utilization: refused." in page
    assert "version: 2 is not 1.x" in page
    assert (await bot.get(f"/{UPSTREAM}/job/4711/utilization"))[0] == 404


async def test_numbers_outlive_the_series(bot, usage):
    job = await usage.arrives(busy())
    (row,) = await bot.rows("utilization_job")
    await bot.context.resource(BLOBS).delete(row["blob"])
    page = await page_of(bot, job)
    assert "The series have been deleted." in page
    assert "50\N{NO-BREAK SPACE}%" in page
    assert (await bot.get(f"/api/ci/utilization/{UPSTREAM}/{job.run.id}/{job.id}"))[0] == 404


async def test_json_and_csv_of_a_job(bot, usage):
    job = await usage.arrives(
        text(metadata(), record(5, cpu=1.5, gpus=[("A", 7)], commands=["python a"]), record(10))
    )
    address = f"/api/ci/utilization/{UPSTREAM}/{job.run.id}/{job.id}"
    status, answer = await bot.get(address)
    assert status == 200
    assert set(answer) == {"metadata", "ts_list"}
    assert answer["metadata"]["workflow_id"] == job.run.id
    assert answer["metadata"]["segments"] == [
        {
            "level": "CMD_PYTHON",
            "name": "python a",
            "start_at": START + 5,
            "end_at": START + 5,
            "extra_info": {},
        }
    ]
    by_id = {one["id"]: one for one in answer["ts_list"]}
    assert by_id["cpu|max"]["records"] == [{"ts": START + 5, "value": 1.5}, {"ts": START + 10, "value": 10.0}]
    gpu = by_id["gpu_usage|0|uuid:A|util_percent|max"]
    assert (gpu["name"], gpu["records"]) == ("gpu_0_util", [{"ts": START + 5, "value": 7.0}])
    assert by_id["gpu_usage|0|uuid:A|util_percent|avg"]["name"] == "gpu_0_util_avg"
    _, answer = await bot.get(f"{address}?raw=1")
    assert answer["raw"][1] == {
        "ts": START + 10,
        "data": {"cpu|avg": 10, "cpu|max": 10, "memory|avg": 20, "memory|max": 20},
    }
    async with bot.http.get(f"{bot.url}{address}.csv") as told:
        assert told.headers["Content-Type"] == "text/csv; charset=utf-8"
        lines = list(csv.DictReader(io.StringIO(await told.text())))
    assert [line["cpu|max"] for line in lines] == ["1.5", "10.0"]
    assert lines[1]["gpu_usage|0|uuid:A|util_percent|max"] == ""
    status, answer = await bot.get(f"/api/ci/utilization/{UPSTREAM}/runs/{job.run.id}")
    assert [(one["job_id"], one["cpu_max"], one["status"]) for one in answer["jobs"]] == [
        (job.id, 10.0, "ok")
    ]
    assert (await bot.get(f"/api/ci/utilization/{UPSTREAM}/1/{job.id}"))[0] == 404


async def test_one_line_on_the_pages_of_job_run_and_commit(bot, usage):
    job = await usage.arrives(story())
    line = "CPU 40 % avg, memory 97 % at 16:01 while test_ops.py and 1 more ran, NPUs idle 50 %"
    for address in (f"/job/{job.id}", f"/run/{job.run.id}", f"/commit/{job.run.head_sha}"):
        _, page = await bot.get(f"/{UPSTREAM}{address}")
        assert line in page, address
        assert f"/{UPSTREAM}/job/{job.id}/utilization" in page


async def test_nothing_of_a_private_repository_is_shown(bot, usage):
    job = await usage.arrives(busy())
    addresses = (
        f"/{UPSTREAM}/job/{job.id}/utilization", f"/api/ci/utilization/{UPSTREAM}/{job.run.id}/{job.id}",
        f"/api/ci/utilization/{UPSTREAM}/{job.run.id}/{job.id}.csv",
        f"/api/ci/utilization/{UPSTREAM}/runs/{job.run.id}",
    )  # fmt: skip
    for address in addresses:
        assert (await bot.get(address))[0] == 200, address
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(records["repository"]).values(private=True))
    for address in addresses:
        async with bot.http.get(f"{bot.url}{address}") as answer:
            assert answer.status == 404
            assert "test_ops" not in await answer.text()


async def test_hostile_names_and_times_break_no_page(bot, usage):
    usage_of = {"uuid": '"><script>', "util_percent": {"max": 3}, "<b>": {"max": 1}}
    lines = [
        record(5, commands=["python " + "\u202e<i>" * 50], data={"cpu": {"max": 5}, "gpu_usage": [usage_of]}),
        record(0, timestamp=4_000_000_000, cpu=1.0),
        record(0, timestamp=7, cpu=99.0),
    ]
    job = await usage.arrives(text(metadata(job_name="<script>"), *lines))
    page = await page_of(bot, job)
    assert "<script>" not in page
    assert "<i>" not in page
    assert "\u202e" not in page
    _, answer = await bot.get(f"/api/ci/utilization/{UPSTREAM}/{job.run.id}/{job.id}")
    assert json.dumps(answer)
