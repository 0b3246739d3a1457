"""Operations of utilization."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.ci.utilization import job_api, report_api
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of

DATE = matching(r"20[2-9]\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])")
NO_JOB: op.Refusal = (404, "not_found", "no usage log of that job may be shown")
NO_RUN: op.Refusal = (404, "not_found", "no measured job of that run may be shown")

_read = partial(
    op.Operation,
    topic=op.Topic("CI", "The repositories' own CI, as the App collects it."),
    callers=op.READER,
)
RUN = op.in_path("run", op.Number, "GitHub's id of the run")
JOB = (
    *op.repository(),
    RUN,
    op.in_path("job", op.Number, "GitHub's id of the job"),
    op.whole("attempt", 1_000_000, "the attempt of the run; without it the newest"),
)
OPERATIONS = (
    _read(
        "GET /api/ci/utilization/{owner}/{repo}/{run}/{job}",
        "jobUtilization",
        "What the machine did while a job ran",
        job_api.JobUtilization,
        parameters=[*JOB, op.in_query("raw", Annotated[str, one_of(["1"])], "every record, too")],
        refusals=[op.WRONG_PARAMETER, NO_JOB, *op.READING],
    ),
    _read(
        "GET /api/ci/utilization/{owner}/{repo}/{run}/{job}.csv",
        "jobUtilizationCsv",
        "The same as CSV: a line for every record",
        op.Content(str, "a column `ts`, seconds since 1970, and one for every series", media_type="text/csv"),
        parameters=[*JOB],
        refusals=[op.WRONG_PARAMETER, NO_JOB, *op.READING],
    ),
    _read(
        "GET /api/ci/utilization/{owner}/{repo}/runs/{run}",
        "runUtilization",
        "The measured jobs of a run",
        job_api.RunUtilization,
        parameters=[*op.repository(), RUN],
        refusals=[NO_RUN, *op.READING],
    ),
    _read(
        "GET /api/ci/utilization/{owner}/{repo}/report",
        "utilizationReport",
        "How much of their machines groups of jobs use, over time",
        report_api.UsageReport,
        parameters=[
            *op.repository(),
            op.in_query(
                "group_by", Annotated[str, one_of(report_api.KINDS)], "what is a group", default="job_name"
            ),
            op.in_query("parent_group", op.Text, "only jobs of this workflow"),
            op.in_query(
                "start", Annotated[str, DATE], f"the first day; {parameters.DAYS} days before the last"
            ),
            op.in_query("end", Annotated[str, DATE], "the last day; today"),
            op.in_query(
                "granularity",
                Annotated[str, one_of(["all", "day", "week", "month"])],
                "periods",
                default="all",
            ),
            op.in_query(
                "runs",
                Annotated[str, one_of(["trusted", "others"])],
                "of trusted branches, or the others",
                default="trusted",
            ),
        ],
        refusals=[
            op.WRONG_PARAMETER,
            (404, "not_found", "nothing of that repository may be shown"),
            *op.READING,
        ],
    ),
)
