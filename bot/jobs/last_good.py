"""The last good commit of a branch: the newest on which every selected job, and every selected backend, passed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.errors import Rejected
from bot.jobs import branch_reads, grid, job_names, rows
from bot.jobs.settings import TrunkSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.commit_cells import Outline
    from bot.jobs.grid import Column, Facts, Grid
    from bot.jobs.tables import CommitRow

BLOCKING = "blocking"
WINDOW = 50  # newest commits: columns without a cell there are not asked for
SEARCHED = 400  # commits
FIRST_READ = 5  # candidates: nearly always one of them is good
BACKENDS_MOST = 20


@dataclass(frozen=True, kw_only=True)
class LastGood:
    """A commit, and how many columns passed on it."""

    commit: CommitRow
    columns: int


async def find_last_good(
    tx: Transaction, settings: Settings, branch: Branch, *, jobs: str, backends: tuple[str, ...]
) -> LastGood:
    """Find the last good commit. `jobs` is a pattern (RE2) over names, or `blocking`.

    If no job is known to block, `blocking` means those that ran on at least half of the newest commits. A commit on
    which one of the selected columns has no cell is not good: absence of data makes nothing green.
    Raises Rejected 404 when there is none among the newest, or nothing is selected.
    """
    options = settings.of(TrunkSettings)
    devices = await branch_reads.device_names(tx)
    wanted = _selection(jobs, [devices.get(name.casefold(), name) for name in backends])
    commits, _ = await branch_reads.newest_commits(tx, branch, before=None, limit=SEARCHED)
    outlines = await branch_reads.read_outlines(
        tx, branch.repository["repository_id"], [row["sha"] for row in commits]
    )
    facts = await branch_reads.read_facts(tx, settings, branch, commits[:WINDOW], outlined=outlines)
    window = grid.build_grid(facts, options)
    selected = {column.name for column in window.columns if wanted(column)}
    if jobs == BLOCKING and not window.blocking_named:
        selected -= _rare_columns(window)
    _check_commit(selected, backends, devices)
    candidates = _candidates(commits, outlines, await _column_ids(tx, facts, selected, options))
    start, size = 0, FIRST_READ
    while start < len(candidates):
        read = await branch_reads.read_facts(tx, settings, branch, candidates[start : start + size])
        if good := _newest(grid.build_grid(read, options), selected):
            return LastGood(commit=good, columns=len(selected))
        start, size = start + size, WINDOW
    which = f"{len(selected)} {'blocking' if jobs == BLOCKING else 'selected'} jobs"
    detail = f"on none of the newest {SEARCHED} commits did all {which} pass"
    raise Rejected(404, "no_good_commit", detail)


def _rare_columns(window: Grid) -> set[str]:
    """Return upstream's jobs that ran on less than half of the commits: periodic ones, and those for some paths.

    None where no job ran on half of them.
    """
    ran: Counter[int] = Counter()
    commits = 0
    for line in window.lines:
        places = [at for at in line.cells if window.columns[at].source in grid.OWN]
        ran.update(places)
        commits += bool(places)
    rare = {at for at, times in ran.items() if times * 2 < commits}
    return {window.columns[at].name for at in rare} if len(rare) < len(ran) else set()


def _candidates(
    commits: Sequence[CommitRow], outlines: Mapping[str, Outline], ids: Collection[frozenset[int]]
) -> list[CommitRow]:
    """Return the commits that may be good: those without stored cells, and those where all of upstream's jobs passed.

    `ids` holds the columns of each selected job.
    """
    gone = grid.gone_commits(commits)
    wanted = [sum(1 << key for key in each) for each in ids]
    return [
        row
        for row in commits
        if row["sha"] not in gone
        and ((known := outlines.get(row["sha"])) is None or all(known.good & each for each in wanted))
    ]


async def _column_ids(
    tx: Transaction, facts: Facts, selected: Collection[str], settings: TrunkSettings
) -> list[frozenset[int]]:
    """Return the columns of each selected job of upstream, including those from before a change of its name."""
    columns = facts.columns
    if settings.ci_aliases and facts.commits:
        columns = await rows.columns(tx, facts.commits[0]["repository_id"])
    ids: defaultdict[str, set[int]] = defaultdict(set)
    for key, column in sorted(columns.items()):
        name = job_names.column_name(column, settings)
        if name is not None and name in selected:
            ids[name].add(key)
    return [frozenset(each) for each in ids.values()]


def _selection(jobs: str, labels: list[str]) -> Callable[[Column], bool]:
    pattern = None if jobs == BLOCKING else job_names.compile_typed(jobs)
    folded = tuple(f"backends / {label} / ".casefold() for label in labels)

    def wanted(column: Column) -> bool:
        if column.source == "oot" and column.name.casefold().startswith(folded):
            return True
        return column.blocking if pattern is None else bool(pattern.search(column.name))

    return wanted


def _check_commit(selected: Collection[str], backends: tuple[str, ...], devices: dict[str, str]) -> None:
    """Raise Rejected 404 when nothing is selected, or a backend has no result that could be good."""
    if not selected:
        detail = f"no selected job has a result on the newest {WINDOW} commits"
        raise Rejected(404, "no_good_commit", detail)
    for backend in backends:
        label = devices.get(backend.casefold(), backend)
        if not any(name.casefold().startswith(f"backends / {label} / ".casefold()) for name in selected):
            detail = f"{backend[:200]} has no result on the newest {WINDOW} commits"
            raise Rejected(404, "no_good_commit", detail)


def _newest(whole: Grid, selected: Collection[str]) -> CommitRow | None:
    places = [place for place, column in enumerate(whole.columns) if column.name in selected]
    if len(places) < len(selected):
        return None
    for line in whole.lines:
        if all((cell := line.cells.get(at)) is not None and cell.good for at in places):
            return line.commit
    return None
