"""Reading a report for a request: which repository, days, runs and groups; shared by page and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.collect import job_reads
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.utilization import day_rows, report
from bot.ci.utilization.periods import Period, Piece, periods, pieces
from bot.ci.utilization.report import Group, Numbers
from bot.core.errors import Rejected
from bot.web import parameters
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

    from bot.db.transaction import Transaction

DAY = 86_400_000  # milliseconds
TEXT_MOST = 1_000


@dataclass(frozen=True, kw_only=True)
class Window:
    """Some days of one repository's runs, trusted ones or the others."""

    repo: str
    owners: Collection[int]
    first: int
    last: int
    trusted: bool


def trusted(request: web.Request) -> bool:
    """Return which runs are asked for."""
    return parameters.choice(request, "runs", ("trusted", "others")) == "trusted"


async def owners(request: web.Request, tx: Transaction) -> tuple[str, set[int]]:
    """Return the repository in the path and its ids; raises Rejected 404 where it may not be shown."""
    repo = parameters.repo(request)
    found = await job_reads.visible(request, tx, repo)
    if not found:
        raise Rejected(404, "not_found", f"nothing of {repo} may be shown")
    return repo, found


def costs(request: web.Request) -> report.Costs:
    """Return what runners cost."""
    return request.app[CONTEXT].settings.of(TrunkSettings).ci_runner_cost


async def whole(tx: Transaction, window: Window, kind: str, money: report.Costs) -> dict[Group, Numbers]:
    """Return the numbers of every group over the whole window."""
    rows = await _read(tx, window, kind, periods(window.first, window.last, "all"))
    sums = report.totals(rows, lambda row: Group(row["group_key"], row["parent"]))
    return {group: total.numbers(money) for group, total in sums.items()}


async def over_time(
    tx: Transaction,
    window: Window,
    granularity: str,
    money: report.Costs,
    *,
    kind: str = "workflow",
    group: Group | None = None,
) -> list[tuple[Period, Numbers]]:
    """Return the numbers of each period, of one group or of everything."""
    chosen = periods(window.first, window.last, granularity)
    rows = await _read(tx, window, kind, chosen, group=group)
    period_of = _period_of(chosen)
    sums = report.totals(rows, lambda row: period_of[Piece(row["span"], row["day"])])
    nothing = report.Total()
    return [(each, sums.get(each, nothing).numbers(money)) for each in chosen]


async def by_group(
    tx: Transaction,
    window: Window,
    kind: str,
    granularity: str,
    *,
    money: report.Costs,
    parent: str | None,
) -> dict[Group, list[tuple[Period, Numbers]]]:
    """Return the numbers of every group and period; periods without a job are left out."""
    chosen = periods(window.first, window.last, granularity)
    rows = await _read(tx, window, kind, chosen, parent=parent)
    period_of = _period_of(chosen)
    sums = report.totals(
        rows,
        lambda row: (
            Group(row["group_key"], row["parent"]),
            period_of[Piece(row["span"], row["day"])],
        ),
    )
    found: dict[Group, list[tuple[Period, Numbers]]] = {}
    for group, period in sorted(sums):
        found.setdefault(group, []).append((period, sums[group, period].numbers(money)))
    return found


def _period_of(chosen: Collection[Period]) -> dict[Piece, Period]:
    return {piece: each for each in chosen for piece in pieces(each)}


async def _read(
    tx: Transaction,
    window: Window,
    kind: str,
    chosen: Collection[Period],
    *,
    group: Group | None = None,
    parent: str | None = None,
) -> list[dict[str, Any]]:
    return await day_rows.read(
        tx,
        window.owners,
        kind,
        [piece for each in chosen for piece in pieces(each)],
        trusted=window.trusted,
        group=group,
        parent=parent,
    )
