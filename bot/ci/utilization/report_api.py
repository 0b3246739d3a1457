"""GET /api/ci/utilization/{owner}/{repo}/report: groups of jobs over time, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ci.utilization import day_rows, periods, report_reads
from bot.ci.utilization.report import Numbers
from bot.ci.utilization.report_reads import DAY, TEXT_MOST, Window
from bot.core.errors import Rejected
from bot.web import parameters
from bot.web.answers import Answer, send
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from aiohttp import web

KINDS = {"job_name": "job", "workflow_name": "workflow", "runner_label": "runner"}
GROUPS_MOST = 2_000
EXAMPLE = Meta(examples=["2026-01-31"])


class UsagePeriod(Numbers, frozen=True, kw_only=True):
    """A group in some days"""

    start: Annotated[str, EXAMPLE]
    end: Annotated[str, EXAMPLE]


class UsageGroup(Struct, frozen=True, kw_only=True):
    """A group of jobs; periods without a measured job are left out"""

    group: str
    parent: Annotated[str, Meta(description="of a job: its workflow; else empty")]
    periods: list[UsagePeriod]


class UsageReport(Answer, frozen=True, kw_only=True):
    """Groups of measured jobs, by name"""

    start: Annotated[str, EXAMPLE]
    end: Annotated[str, EXAMPLE]
    measured: Annotated[int, Meta(description="jobs with a usage log in these days, of all runs")]
    jobs: Annotated[int, Meta(description="jobs that were created in these days, measured or not")]
    groups: list[UsageGroup]
    more: Annotated[int, Meta(description="groups that are left out")]


@in_render_thread
async def groups(request: web.Request) -> web.Response:
    """Answer with the groups of a repository's jobs."""
    kind = KINDS[parameters.choice(request, "group_by", KINDS)]
    granularity = parameters.choice(request, "granularity", ("all", "day", "week", "month"))
    trusted = report_reads.trusted(request)
    parent = parameters.given(request, "parent_group")[:TEXT_MOST] or None
    money = report_reads.costs(request)
    async with request.app[CONTEXT].store.read() as tx:
        first, last = _days(request, today=tx.now // DAY)
        repo, owners = await report_reads.owners(request, tx)
        window = Window(repo=repo, owners=owners, first=first, last=last, trusted=trusted)
        found = await report_reads.by_group(tx, window, kind, granularity, money=money, parent=parent)
        measured = sum((await day_rows.measured(tx, owners, first, last)).values())
        run = sum((await day_rows.jobs_run(tx, owners, first, last)).values())
    listed = sorted(found.items())
    return send(
        UsageReport(
            start=periods.iso(first),
            end=periods.iso(last),
            measured=measured,
            jobs=max(run, measured),
            groups=[
                UsageGroup(
                    group=group.key,
                    parent=group.parent,
                    periods=[
                        UsagePeriod(
                            start=periods.iso(each.first), end=periods.iso(each.last), **_fields(numbers)
                        )
                        for each, numbers in over_time
                    ],
                )
                for group, over_time in listed[:GROUPS_MOST]
            ],
            more=max(0, len(listed) - GROUPS_MOST),
        )
    )


def _fields(numbers: Numbers) -> dict[str, Any]:
    return {name: getattr(numbers, name) for name in Numbers.__struct_fields__}


def _days(request: web.Request, *, today: int) -> tuple[int, int]:
    """Return the first and the last day asked for; raises Rejected 400."""
    given = {name: parameters.given(request, name) for name in ("start", "end")}
    found = {name: periods.day_of(text) if text else None for name, text in given.items()}
    wrong = [name for name, text in given.items() if text and found[name] is None]
    if wrong:
        raise Rejected(400, "invalid_parameter", f"{wrong[0]} must be a date, as in 2026-01-31")
    last = today if found["end"] is None else found["end"]
    first = last - parameters.DAYS + 1 if found["start"] is None else found["start"]
    if not 0 <= last - first < parameters.MOST_DAYS:
        raise Rejected(
            400, "invalid_parameter", f"end must be at most {parameters.MOST_DAYS:,} days after start"
        )
    return first, last
