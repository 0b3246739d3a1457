"""Reading a report for a request: which repository, days, runs and groups; shared by page and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.collect import job_reads
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.utilization import day_rows, report
from bot.ci.utilization.periods import Period, Piece, periods, pieces
from bot.ci.utilization.report import Group, Numbers
from bot.web import view_parameters as declare
from bot.web.refusals import Refused
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

DAY = 86_400_000  # milliseconds
NOTHING = Refused(404, "not_found", "nothing of that repository may be shown")
RUNS = declare.choice("runs", ("trusted", "others"), "of trusted branches, or the others")


@dataclass(frozen=True, kw_only=True)
class Window:
    """Some days of one repository's runs, trusted ones or the others."""

    repo: str
    owners: Collection[int]
    first: int
    last: int
    trusted: bool


async def owners(asked: Asked) -> tuple[str, set[int]]:
    """Return the repository in the path and its ids; raises Rejected 404 where it may not be shown."""
    repo = asked[REPO]
    found = await job_reads.visible_to(asked, repo)
    if not found:
        raise NOTHING.because(f"nothing of {repo} may be shown")
    return repo, found


def costs(settings: Settings) -> report.Costs:
    """Return what runners cost."""
    return settings.of(TrunkSettings).ci_runner_cost


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
