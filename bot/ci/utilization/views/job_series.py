"""GET /api/ci/utilization/{owner}/{repo}/{run}/{job} and the same as CSV: what the machine did while a job ran."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.utilization.parse.segments import LEVEL
from bot.ci.utilization.tables import JobRow
from bot.ci.utilization.views import job_reads, series_names
from bot.ci.utilization.views.job_reads import ATTEMPT
from bot.ci.utilization.views.run import RUN
from bot.web import csv_export
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import fill
from bot.web.asked import asking, describe
from bot.web.refusals import Refused
from bot.web.render_thread import in_render_thread
from bot.web.row_answers import RowAnswer
from bot.web.view import Endpoint
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.utilization.parse.blob import Stored
    from bot.web.asked import Asked

NO_JOB = Refused(404, "not_found", "no usage log of that job may be shown")
JOB = declare.identifier("job", "GitHub's id of the job")
RAW = declare.choice("raw", ("", "1"), "every record, too")
OF_JOB = (REPO, RUN, JOB, ATTEMPT)
PARAMETERS = (*OF_JOB, RAW)


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


@in_render_thread
async def send_series(request: web.Request) -> web.Response:
    """Answer with a job's series."""
    async with asking(request, PARAMETERS) as asked:
        row, with_raw = await _find(asked), asked[RAW]
    stored = await _stored(asked, row)
    body = await asyncio.to_thread(_encoded, row, stored, with_raw=with_raw == "1")
    return web.Response(body=body, headers={"Content-Type": "application/json; charset=utf-8"})


@in_render_thread
async def send_csv(request: web.Request) -> web.Response:
    """Answer with every number of a job."""
    async with asking(request, OF_JOB) as asked:
        row = await _find(asked)
    stored = await _stored(asked, row)
    text = await asyncio.to_thread(_csv, stored)
    name = f'attachment; filename="utilization-{row["job_id"]}.csv"'
    return web.Response(
        text=text, content_type="text/csv", charset="utf-8", headers={"Content-Disposition": name}
    )


async def _find(asked: Asked) -> JobRow:
    row = (await job_reads.find_job(asked, asked[JOB], asked[ATTEMPT])).row
    if row is None or row["run_id"] != asked[RUN]:
        raise NO_JOB.because("no usage log of that job may be shown")
    return row


async def _stored(asked: Asked, row: JobRow) -> Stored:
    stored = await job_reads.load_series(asked.context, row)
    if stored is None:
        raise NO_JOB.because(row["reason"] or "the series have been deleted")
    return stored


def _encoded(row: JobRow, stored: Stored, *, with_raw: bool) -> bytes:
    chosen = [
        (series, one.name if series == one.most else f"{one.name}_avg")
        for one in series_names.charted(stored.series)
        for series in (one.most, one.mean)
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
            raw=_raw(stored) if with_raw else None,
        )
    )


def metadata_of_job(row: JobRow) -> UsageMetadata:
    """Return the metadata of a job as upstream's tools read them."""
    return fill(
        UsageMetadata,
        row,
        workflow_id=row["run_id"],
        usage_collect_interval=row["collect_interval"],
        data_model_version=row["model_version"],
        segments=[
            UsageSegment(level=LEVEL, name=name, start_at=start, end_at=end, extra_info={})
            for name, start, end in row["segments"]
        ],
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


PATH = r"/api/ci/utilization/{owner}/{repo}/{run:\d+}/{job:\d+}"
_describe = partial(
    op.Operation, topic=op.CI, callers=op.READER, refusals=[op.WRONG_PARAMETER, NO_JOB, *op.READING]
)
ENDPOINTS = (
    Endpoint(
        web.get(PATH, send_series),
        _describe(
            "GET /api/ci/utilization/{owner}/{repo}/{run}/{job}",
            "jobUtilization",
            "What the machine did while a job ran",
            JobUtilization,
            parameters=describe(PARAMETERS),
        ),
    ),
    Endpoint(
        web.get(f"{PATH}.csv", send_csv),
        _describe(
            "GET /api/ci/utilization/{owner}/{repo}/{run}/{job}.csv",
            "jobUtilizationCsv",
            "The same as CSV: a line for every record",
            op.Content(
                str, "a column `ts`, seconds since 1970, and one for every series", media_type="text/csv"
            ),
            parameters=describe(OF_JOB),
        ),
    ),
)
