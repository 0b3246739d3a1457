"""GET /api/ci/utilization/{owner}/{repo}/{run}/{job}, as CSV, and .../runs/{run}: jobs as JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.collect import job_reads as ci_jobs
from bot.ci.utilization import job_reads, rows, series_names
from bot.ci.utilization.segments import LEVEL
from bot.core.errors import Rejected
from bot.web import csv_export, parameters
from bot.web.answers import Answer, fill
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from bot.ci.utilization.blob import Stored
    from bot.ci.utilization.rows import JobRow

JOBS_MOST = 1_000
JSON = {"Content-Type": "application/json; charset=utf-8"}


class UsageSegment(Struct, frozen=True, kw_only=True):
    """A piece of time in which a command ran; seconds since 1970"""

    level: str
    name: str
    start_at: int
    end_at: int
    extra_info: dict[str, Any]


class UsageMetadata(Struct, frozen=True, kw_only=True):
    """A job whose machine was watched; seconds since 1970, ids are GitHub's"""

    repo: str
    workflow_id: Annotated[int, Meta(description="the run")]
    run_attempt: int
    job_id: int
    workflow_name: str
    job_name: str
    usage_collect_interval: float | None
    data_model_version: str | None
    gpu_count: int | None
    cpu_count: int | None
    gpu_type: str | None
    start_at: int
    end_at: int
    segments: list[UsageSegment]
    tags: list[str]


class UsagePoint(Struct, frozen=True, kw_only=True):
    """A point of a series"""

    ts: Annotated[int, Meta(description="seconds since 1970")]
    value: Annotated[float, Meta(description="percent")]


class UsageSeries(Struct, frozen=True, kw_only=True):
    """A series of a job"""

    id: Annotated[str, Meta(description="the path to the number", examples=["cpu|max"])]
    name: Annotated[str, Meta(description="what pages call it", examples=["gpu_0_util"])]
    records: list[UsagePoint]


class UsageRaw(Struct, frozen=True, kw_only=True):
    """The numbers of one record, by series"""

    ts: int
    data: dict[str, float]


class JobUtilization(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's utilization, as upstream's tools read it"""

    metadata: UsageMetadata
    ts_list: list[UsageSeries]
    raw: Annotated[list[UsageRaw] | None, Meta(description="every record, with raw=1 only")] = None


class MeasuredJob(Struct, frozen=True, kw_only=True):
    """A job of a run; percent, and null where nothing was measured"""

    run_attempt: int
    job_id: Annotated[int, Meta(description="below 0: which job the log is of is not known")]
    workflow_name: str
    job_name: str
    runner_label: str
    status: Annotated[str, Meta(description="ok, no_records, legacy or refused")]
    reason: str
    flags: list[str]
    trusted: Annotated[bool, Meta(description="of the repository's own run on a trusted branch")]
    records: int
    error_records: int
    cpu_avg: float | None
    cpu_p90: float | None
    cpu_max: float | None
    mem_avg: float | None
    mem_p90: float | None
    mem_max: float | None
    gpu_avg: float | None
    gpu_p90: float | None
    gpu_max: float | None
    gpu_bw_avg: float | None
    gpu_bw_p90: float | None
    gpu_bw_max: float | None
    gpu_alloc_avg: float | None
    gpu_alloc_p90: float | None
    gpu_alloc_max: float | None
    observed_s: float
    idle_gpu_s: float
    gpu_s: float
    no_data_s: float
    saturated_s: float
    oom_risk: bool


class RunUtilization(Answer, frozen=True, kw_only=True):
    """The measured jobs of a run"""

    jobs: list[MeasuredJob]


@in_render_thread
async def job(request: web.Request) -> web.Response:
    """Answer with a job's series."""
    with_raw = parameters.choice(request, "raw", ("", "1")) == "1"
    row, stored = await _found(request)
    body = await asyncio.to_thread(_encoded, row, stored, with_raw=with_raw)
    return web.Response(body=body, headers=JSON)


@in_render_thread
async def job_csv(request: web.Request) -> web.Response:
    """Answer with every number of a job."""
    row, stored = await _found(request)
    text = await asyncio.to_thread(_csv, stored)
    name = f'attachment; filename="utilization-{row["job_id"]}.csv"'
    return web.Response(
        text=text, content_type="text/csv", charset="utf-8", headers={"Content-Disposition": name}
    )


@in_render_thread
async def run(request: web.Request) -> web.Response:
    """Answer with the jobs of a run."""
    repo, run_id = parameters.repo(request), parameters.number(request.match_info["run"])
    async with request.app[CONTEXT].store.read() as tx:
        found: list[rows.JobSummary] = []
        for owner in sorted(await ci_jobs.visible(request, tx, repo)):
            found += await rows.of_run(tx, owner, run_id, limit=JOBS_MOST)
    if not found:
        raise Rejected(404, "not_found", "no measured job of that run may be shown")
    answer = RunUtilization(jobs=[fill(MeasuredJob, one) for one in found])
    return web.Response(body=msgspec.json.encode(answer), headers=JSON)


async def _found(request: web.Request) -> tuple[JobRow, Stored]:
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        row = (await job_reads.found(request, tx, "job")).row
    if row is None or row["run_id"] != parameters.number(request.match_info["run"]):
        raise Rejected(404, "not_found", "no usage log of that job may be shown")
    stored = await job_reads.stored(context, row)
    if stored is None:
        raise Rejected(404, "not_found", row["reason"] or "the series have been deleted")
    return row, stored


def _encoded(row: JobRow, stored: Stored, *, with_raw: bool) -> bytes:
    chosen = [
        (series, one.name if series == one.most else f"{one.name}_avg")
        for one in series_names.charted(stored.series)
        for series in (one.most, one.mean)
        if series in stored.series
    ]
    return msgspec.json.encode(
        JobUtilization(
            metadata=metadata(row),
            ts_list=[
                UsageSeries(
                    id=series,
                    name=name,
                    records=[
                        UsagePoint(ts=at, value=value)
                        for at, value in zip(stored.timestamps, stored.series[series], strict=True)
                        if value == value  # noqa: PLR0124 - only NaN is not itself
                    ],
                )
                for series, name in chosen
            ],
            raw=_raw(stored) if with_raw else None,
        )
    )


def metadata(row: JobRow) -> UsageMetadata:
    """Return what upstream's tools are told of a job."""
    segments = [
        UsageSegment(level=LEVEL, name=name, start_at=start, end_at=end, extra_info={})
        for name, start, end in row["segments"]
    ]
    return UsageMetadata(
        repo=row["repo"],
        workflow_id=row["run_id"],
        run_attempt=row["run_attempt"],
        job_id=row["job_id"],
        workflow_name=row["workflow_name"],
        job_name=row["job_name"],
        usage_collect_interval=row["collect_interval"],
        data_model_version=row["model_version"],
        gpu_count=row["gpu_count"],
        cpu_count=row["cpu_count"],
        gpu_type=row["gpu_type"],
        start_at=row["start_at"],
        end_at=row["end_at"],
        segments=segments,
        tags=[],
    )


def _raw(stored: Stored) -> list[UsageRaw]:
    names = list(stored.series)
    columns = [stored.series[name] for name in names]
    return [
        UsageRaw(
            ts=at,
            data={name: value for name, value in zip(names, values, strict=True) if value == value},  # noqa: PLR0124 - not NaN
        )
        for at, *values in zip(stored.timestamps, *columns, strict=True)
    ]


def _csv(stored: Stored) -> str:
    names = ["ts", *stored.series]
    columns = [stored.timestamps, *(stored.series[name] for name in stored.series)]
    lines = (
        {name: None if value != value else value for name, value in zip(names, record, strict=True)}  # noqa: PLR0124 - not NaN
        for record in zip(*columns, strict=True)
    )
    return csv_export.write(names, lines)
