"""The views of utilization in the order of the OpenAPI document, and what their templates use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.utilization import words
from bot.ci.utilization.tables import utilization_job
from bot.ci.utilization.views import job, job_series, report, report_json, run
from bot.web import html

if TYPE_CHECKING:
    from aiohttp import web

    from bot.web.asked import Asked

FLAGS = {
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
    """Return a number of percent, to a tenth where it is small."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash stands for no value
    digits = 1 if 0 < value < 10 and round(value, 1) % 1 else 0
    return f"{value:.{digits}f}\N{NO-BREAK SPACE}%"


def number(value: float | None) -> str:
    """Return a number under a head that says percent."""
    return percent(value).removesuffix("\N{NO-BREAK SPACE}%")


def clock(seconds: int) -> str:
    """Return a time of day, UTC; hostile logs may name any."""
    return f"{datetime.fromtimestamp(min(seconds, 2**33), UTC):%H:%M:%S}"


VIEWS = (
    job.VIEW,
    run.PAGE,
    report.VIEW,
    *job_series.ENDPOINTS,
    run.VIEW,
    report_json.VIEW,
)


def setup(app: web.Application) -> None:
    """Add what the templates use."""
    filters = {"pc": percent, "num": number, "clock": clock, "command": words.command}
    html.add_names(app, filters=filters, values={"FLAGS": FLAGS})


async def has_usage(asked: Asked, repo: str) -> bool:
    """Whether jobs of a repository were measured."""
    return await job_reads.has_rows(asked, repo, utilization_job.c.repository_id)
