"""What the machine did while a job ran, over time: a page, JSON and CSV.

GET /{owner}/{repo}/job/{id}/utilization and /api/ci/utilization/{owner}/{repo}/{run}/{job}.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.core.json_fields import Kind, read_member
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.remote_blobs import BlobMissing
from bot.evidence.usage import measured_jobs
from bot.evidence.usage.measured_jobs import explain_absence
from bot.evidence.usage.parse import columns
from bot.evidence.usage.parse.segments import SEGMENT_LEVEL, in_background
from bot.evidence.usage.tables import JobRow
from bot.jobs import runs
from bot.pages import job_reads
from bot.pages.logs import sections as logs
from bot.pages.usage import chart
from bot.pages.usage.run import RUN
from bot.web import answers, openapi, parameters
from bot.web.answers import RowAnswer, fill_struct
from bot.web.openapi import DeclaredRefusal
from bot.web.page_cache import in_render_thread
from bot.web.parameters import REPO, describe_parameters, open_query
from bot.web.view import Endpoint, Page, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.context import Context
    from bot.evidence.usage.parse.columns import StoredUsage
    from bot.ingest.record_rows import WorkflowJobRow
    from bot.web.parameters import Query

ATTEMPT = parameters.optional_whole("attempt", 1_000_000, "the attempt of the run; without it the newest")
SERIES_MOST = 500  # characters
LATEST = 2**33  # seconds
OOM = "oom"  # the kind of a verdict on a log
JOB_OF_PAGE = parameters.identifier("id", "GitHub's id of the job")
ALL = parameters.choice("all", ("", "1"), "commands in the background, too")
FROM = parameters.whole("from", LATEST, "the first second of the chart", default=0)
TO = parameters.whole("to", LATEST, "its last second", default=0)
SERIES = parameters.text("series", "the series of the chart", most=SERIES_MOST)
NO_JOB = DeclaredRefusal(404, "not_found", "no usage log of that job may be shown")
JOB = parameters.identifier("job", "GitHub's id of the job")
RAW = parameters.choice("raw", ("", "1"), "every record, too")
JOB_PARAMETERS = (REPO, RUN, JOB, ATTEMPT)
SERIES_PARAMETERS = (*JOB_PARAMETERS, RAW)
SERIES_PATH = r"/api/ci/utilization/{owner}/{repo}/{run:\d+}/{job:\d+}"
_operation = partial(
    openapi.Operation,
    topic=openapi.CI,
    callers=openapi.READER,
    refusals=[openapi.WRONG_PARAMETER, NO_JOB, *openapi.READING],
)


class JobUsage(NamedTuple):
    """A job that may be shown: GitHub's record of it, its utilization, or both."""

    job: WorkflowJobRow | None
    row: JobRow | None
    absence: str  # why there is no utilization


@dataclass(frozen=True, kw_only=True)
class JobPage:
    """A job, its utilization, and what its log says."""

    usage: JobUsage
    query: chart.ChartQuery
    verdicts: Sequence[Mapping[str, Any]]
    stored: StoredUsage | None = None


class UsageSegment(Struct, frozen=True, kw_only=True):
    """A piece of time in which a command ran; seconds since 1970"""

    level: str
    name: str
    start_at: int
    end_at: int
    extra_info: dict[str, Any]


class UsageMetadata(
    RowAnswer,
    row=JobRow,
    only=(
        "repo", "workflow_id", "run_attempt", "job_id", "workflow_name", "job_name", "usage_collect_interval",
        "data_model_version", "gpu_count", "cpu_count", "gpu_type", "start_at", "end_at",
    ),
    frozen=True,
    kw_only=True,
):  # fmt: skip
    """A job whose machine was watched; seconds since 1970, ids are GitHub's"""

    workflow_id: Annotated[int, Meta(description="the run")]
    usage_collect_interval: float | None
    data_model_version: str | None
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


async def find_usage(query: Query, identifier: int, attempt: int | None) -> JobUsage:
    """Find a job of the repository in the path; raise Rejected 404 if it may not be shown."""
    tx, owners = query.tx, await job_reads.visible_ids_of(query, query[REPO])
    row = await measured_jobs.find_measured_job(tx, owners, identifier, attempt)
    job = await runs.find_job(tx, owners, identifier)
    if row is None and job is None:
        raise job_reads.not_known("job")
    return JobUsage(job, row, await explain_absence(tx, job) if row is None and job is not None else "")


async def read_series(context: Context, row: JobRow) -> columns.StoredUsage | None:
    """Read a job's series; None once they have been deleted."""
    if row["blob"] is None:
        return None
    try:
        content = await context.resource(BLOBS).get(row["blob"])
        return await asyncio.to_thread(columns.decode_usage, content)
    except (BlobMissing, columns.DamagedBlob):
        return None


async def read_job(query: Query) -> JobPage:
    """Read a job, and the verdicts on its log."""
    usage = await find_usage(query, query[JOB_OF_PAGE], query[ATTEMPT])
    verdicts: list[Mapping[str, Any]] = []
    if usage.job is not None:
        subject = job_reads.job_subject(query.request, usage.job)
        verdicts = (await logs.job_json(query.tx, subject))["verdicts"]
    chosen = chart.ChartQuery(
        path=query.request.path,
        series=query[SERIES],
        start=query[FROM],
        end=query[TO],
        everything=query[ALL] == "1",
    )
    return JobPage(usage=usage, query=chosen, verdicts=verdicts)


async def load_page_series(query: Query, page: JobPage) -> JobPage:
    """Load the series of a job."""
    row = page.usage.row
    return replace(page, stored=await read_series(query.context, row)) if row else page


def show_job(page: JobPage) -> dict[str, Any]:
    """Return what the page shows: a job's chart and tables."""
    row, of, stored = page.usage.row, page.usage.job, page.stored
    repo = row["repo"] if row else of["repo"] if of else ""
    run_id = row["run_id"] if row else (of and of["run_id"]) or 0
    identifier = row["job_id"] if row else of["id"] if of else 0
    peak = row["peak"] if row else None
    shown = page.query.everything
    return {
        "repo": repo,
        "run_id": run_id,
        "job_id": identifier,
        "title": row["job_name"] if row else (of and of["name"]) or "job",
        "known": of is not None,
        "row": row,
        "absence": page.usage.absence,
        "beside_peak": [name for name in peak["commands"] if shown or not in_background(name)]
        if peak
        else [],
        "view": chart.draw_job(row, stored, chart_steps(of), page.query) if row and stored else None,
        "query": page.query,
        "oom": any(each["kind"] == OOM for each in page.verdicts) or bool(row and row["oom_risk"]),
        "idle": measured_jobs.idle_share(row) if row else None,
        "accelerators": measured_jobs.accelerators(row["gpu_type"] if row else None),
        "json_url": f"/api/ci/utilization/{repo}/{run_id}/{identifier}" if row and stored else None,
    }


def chart_steps(of: WorkflowJobRow | None) -> list[chart.ChartStep]:
    """Return the steps of a job that began, in order."""
    steps = []
    for at, step in enumerate(job_reads.steps_of_job(of) if of else ()):
        raw = of["steps"][at] if of and of["steps"] else {}
        started = read_member(raw, ("started_at",), Kind.TIME)
        ended = read_member(raw, ("completed_at",), Kind.TIME)
        if started is not None:
            steps.append(chart.ChartStep(step.name, started // 1000, (ended or started) // 1000))
    return steps


JOB_VIEW = View(
    read=read_job,
    complete=load_page_series,
    parameters=(REPO, JOB_OF_PAGE, ATTEMPT, ALL, FROM, TO, SERIES),
    page=Page(
        path=r"/{owner}/{repo}/job/{id:\d+}/utilization", template="utilization_job.html", values=show_job
    ),
)


@in_render_thread
async def send_series(request: web.Request) -> web.Response:
    """Answer with a job's series."""
    async with open_query(request, SERIES_PARAMETERS) as query:
        row, with_raw = await _requested_row(query), query[RAW]
    stored = await _stored_series(query, row)
    body = await asyncio.to_thread(_encode_series, row, stored, with_raw=with_raw == "1")
    return web.Response(body=body, headers={"Content-Type": "application/json; charset=utf-8"})


@in_render_thread
async def send_csv(request: web.Request) -> web.Response:
    """Answer with every number of a job."""
    async with open_query(request, JOB_PARAMETERS) as query:
        row = await _requested_row(query)
    stored = await _stored_series(query, row)
    text = await asyncio.to_thread(_csv_records, stored)
    name = f'attachment; filename="utilization-{row["job_id"]}.csv"'
    return web.Response(
        text=text, content_type="text/csv", charset="utf-8", headers={"Content-Disposition": name}
    )


async def _requested_row(query: Query) -> JobRow:
    row = (await find_usage(query, query[JOB], query[ATTEMPT])).row
    if row is None or row["run_id"] != query[RUN]:
        raise NO_JOB.because("no usage log of that job may be shown")
    return row


async def _stored_series(query: Query, row: JobRow) -> StoredUsage:
    stored = await read_series(query.context, row)
    if stored is None:
        raise NO_JOB.because(row["reason"] or "the series have been deleted")
    return stored


def _encode_series(row: JobRow, stored: StoredUsage, *, with_raw: bool) -> bytes:
    chosen = [
        (series, charted.name if series == charted.most else f"{charted.name}_avg")
        for charted in chart.charted_series(stored.series)
        for series in (charted.most, charted.mean)
        if series in stored.series
    ]
    return msgspec.json.encode(
        JobUtilization(
            metadata=metadata_of_job(row),
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
            raw=_raw_records(stored) if with_raw else None,
        )
    )


def metadata_of_job(row: JobRow) -> UsageMetadata:
    """Return the metadata of a job as upstream's tools read them."""
    return fill_struct(
        UsageMetadata,
        row,
        workflow_id=row["run_id"],
        usage_collect_interval=row["collect_interval"],
        data_model_version=row["model_version"],
        segments=[
            UsageSegment(level=SEGMENT_LEVEL, name=name, start_at=start, end_at=end, extra_info={})
            for name, start, end in row["segments"]
        ],
        tags=[],
    )


def _raw_records(stored: StoredUsage) -> list[UsageRaw]:
    names = list(stored.series)
    columns = [stored.series[name] for name in names]
    return [
        UsageRaw(
            ts=at,
            data={name: value for name, value in zip(names, values, strict=True) if value == value},  # noqa: PLR0124 - not NaN
        )
        for at, *values in zip(stored.timestamps, *columns, strict=True)
    ]


def _csv_records(stored: StoredUsage) -> str:
    names = ["ts", *stored.series]
    columns = [stored.timestamps, *(stored.series[name] for name in stored.series)]
    lines = (
        {name: None if value != value else value for name, value in zip(names, record, strict=True)}  # noqa: PLR0124 - not NaN
        for record in zip(*columns, strict=True)
    )
    return answers.write_csv(names, lines)


SERIES_ENDPOINTS = (
    Endpoint(
        web.get(SERIES_PATH, send_series),
        _operation(
            "GET /api/ci/utilization/{owner}/{repo}/{run}/{job}",
            "jobUtilization",
            "What the machine did while a job ran",
            JobUtilization,
            parameters=describe_parameters(SERIES_PARAMETERS),
        ),
    ),
    Endpoint(
        web.get(f"{SERIES_PATH}.csv", send_csv),
        _operation(
            "GET /api/ci/utilization/{owner}/{repo}/{run}/{job}.csv",
            "jobUtilizationCsv",
            "The same as CSV: a line for every record",
            openapi.Content(
                str, "a column `ts`, seconds since 1970, and one for every series", media_type="text/csv"
            ),
            parameters=describe_parameters(JOB_PARAMETERS),
        ),
    ),
)
