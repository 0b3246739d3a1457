"""Reading a report for a request: which repository, days, runs and groups; shared by page and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.utilization import report
from bot.ci.utilization.periods import Period, Piece, periods, pieces
from bot.ci.utilization.report import Group, Numbers
from bot.ci.utilization.store import day_rows
from bot.ci.utilization.sums import Sums
from bot.web import view_parameters as declare
from bot.web.refusals import Refused
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.utilization.tables import PeriodRow
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


async def visible_owners(asked: Asked) -> tuple[str, set[int]]:
    """Return the repository in the path and its ids; raises Rejected 404 where it may not be shown."""
    repo = asked[REPO]
    found = await job_reads.visible_to(asked, repo)
    if not found:
        raise NOTHING.because(f"nothing of {repo} may be shown")
    return repo, found


def runner_costs(settings: Settings) -> report.Costs:
    """Return what runners cost."""
    return settings.of(TrunkSettings).ci_runner_cost


async def read_groups(
    tx: Transaction, window: Window, kind: str, money: report.Costs
) -> dict[Group, Numbers]:
    """Return the numbers of every group over the whole window."""
    rows = await _read_rows(tx, window, kind, periods(window.first, window.last, "all"))
    sums = report.add_up(rows, lambda row: Group(row["group_key"], row["parent"]))
    return {group: report.numbers_of(total, money) for group, total in sums.items()}


async def read_trend(
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
    rows = await _read_rows(tx, window, kind, chosen, group=group)
    period_of = _period_of(chosen)
    sums = report.add_up(rows, lambda row: period_of[Piece(row["span"], row["day"])])
    nothing = Sums()
    return [(each, report.numbers_of(sums.get(each, nothing), money)) for each in chosen]


async def read_groups_over_time(
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
    rows = await _read_rows(tx, window, kind, chosen, parent=parent)
    period_of = _period_of(chosen)
    sums = report.add_up(
        rows,
        lambda row: (
            Group(row["group_key"], row["parent"]),
            period_of[Piece(row["span"], row["day"])],
        ),
    )
    found: dict[Group, list[tuple[Period, Numbers]]] = {}
    for group, period in sorted(sums):
        found.setdefault(group, []).append((period, report.numbers_of(sums[group, period], money)))
    return found


def _period_of(chosen: Collection[Period]) -> dict[Piece, Period]:
    return {piece: each for each in chosen for piece in pieces(each)}


async def _read_rows(
    tx: Transaction,
    window: Window,
    kind: str,
    chosen: Collection[Period],
    *,
    group: Group | None = None,
    parent: str | None = None,
) -> list[PeriodRow]:
    return await day_rows.period_rows(
        tx,
        window.owners,
        kind,
        [piece for each in chosen for piece in pieces(each)],
        trusted=window.trusted,
        group=group,
        parent=parent,
    )
