"""The views of utilization in the order of the OpenAPI document, and what their templates use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bot.evidence.usage import measured_jobs
from bot.evidence.usage.tables import utilization_job
from bot.pages import job_reads
from bot.pages.usage import job, report, run
from bot.web import html

if TYPE_CHECKING:
    from aiohttp import web

    from bot.web.parameters import Query

FLAG_WORDS = {
    "broken_lines": "some lines are broken and left out",
    "commands_left_out": "some commands are left out",
    "foreign_ids": "the log names another run or job than its own",
    "invalid_values": "some numbers cannot be and are left out",
    "milliseconds": "times were in milliseconds",
    "outside_run": "some records are from another time than the run",
    "secrets_masked": "a token on a command line was masked",
    "segments_left_out": "the shortest of very many pieces of commands are left out",
    "series_left_out": "some series are left out",
    "several_logs": "the job left several logs; the fullest is shown",
    "thinned": "of very many records, some are left out",
    "thinned_gpus": "of very many accelerators, some are left out",
    "torn_last_line": "the last line was cut off",
    "unordered": "records were not in order",
}


def percent(value: float | None) -> str:
    """Write a number of percent, to a tenth if it is small."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash stands for no value
    digits = 1 if 0 < value < 10 and round(value, 1) % 1 else 0
    return f"{value:.{digits}f}\N{NO-BREAK SPACE}%"


def number(value: float | None) -> str:
    """Write a number for a column that says percent."""
    return percent(value).removesuffix("\N{NO-BREAK SPACE}%")


def clock(seconds: int) -> str:
    """Write a time of day in UTC; hostile logs may name any."""
    return f"{datetime.fromtimestamp(min(seconds, 2**33), UTC):%H:%M:%S}"


VIEWS = (
    job.JOB_VIEW,
    run.RUN_PAGE,
    report.REPORT_PAGE,
    *job.SERIES_ENDPOINTS,
    run.RUN_VIEW,
    report.REPORT_JSON,
)


def add_template_names(app: web.Application) -> None:
    """Add the filters and values that the templates use."""
    filters = {"pc": percent, "num": number, "clock": clock, "command": measured_jobs.command_words}
    html.add_names(app, filters=filters, values={"FLAGS": FLAG_WORDS})


async def has_usage(query: Query, repo: str) -> bool:
    """Whether jobs of a repository were measured."""
    return await job_reads.has_rows(query, repo, utilization_job.c.repository_id)
