"""What the grid adds to the pages of commits and pull requests: since when the jobs fail that failed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from bot.ci.trunk import branch_history, branch_standing, cells, grid, reading
from bot.ci.trunk.cells import CONCLUSIONS
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import rows
from bot.ci.trunk.views import hud_filter, job_times
from bot.core import escaping
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.branch_history import Before
    from bot.ci.trunk.cells import Cell
    from bot.ci.trunk.grid import Facts, Grid
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.tables import CommitRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.blocks import CommitSubject, PullSubject, Tone

HISTORY = 50  # commits of the branch that are looked at
SHOWN = 30  # failing jobs of one section
NAME_MOST, TITLE_MOST = 160, 60
FAILED = frozenset(
    CONCLUSIONS.index(word) for word in ("failure", "timed_out", "startup_failure", "action_required")
)


async def describe_commit(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return how the jobs that failed on a commit of a branch fared before it, and when its jobs ran."""
    return [*await _on_branch(tx, subject), *await job_times.draw_commit(tx, subject)]


async def describe_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return which jobs that failed on the shown head fail on the base branch, too, and when its jobs ran."""
    return [*await _compared(tx, subject), *await job_times.draw_pull(tx, subject)]


async def _on_branch(tx: Transaction, subject: CommitSubject) -> list[Block]:
    found_line = await branch_history.find_line(tx, subject.repo, subject.sha)
    if found_line is None:
        return []
    branch, line = found_line
    older, _ = await reading.newest_commits(tx, branch, before=line["sha"], limit=HISTORY)
    found = await _read_failing(tx, subject.settings, branch, line, older)
    page = await _page(tx, branch, line)
    made = [
        _commit_line(name, found.before(name), page(name), first=found.failing[name])
        for name in list(found.failing)[:SHOWN]
    ]
    words = f"{found.verdict}: {_count(len(found.failing), found)}"
    tone: Tone = {"green": "good", "red": "bad", "running": "wait"}.get(found.verdict, "idle")  # type: ignore[assignment]
    head = BlockLine(text=words, url=page(""), tone=tone)
    more = [BlockLine(text=f"{len(found.failing) - SHOWN} more")] if len(found.failing) > SHOWN else []
    return [Block(heading=f"In the grid of {branch.name}", lines=(head, *made, *more))]


async def _compared(tx: Transaction, subject: PullSubject) -> list[Block]:
    base = subject.base_ref
    branch = await branch_history.find_branch(tx, subject.repo, base) if base and subject.head_sha else None
    if branch is None or base is None or subject.head_sha is None:
        return []
    newest, _ = await reading.newest_commits(tx, branch, before=None, limit=HISTORY)
    found = await _read_failing(tx, subject.settings, branch, _unpushed(branch, subject.head_sha), newest)
    if not found.failing:
        return []
    seen = {name: found.before(name) for name in found.failing}
    order = sorted(seen, key=lambda name: (seen[name].since is not None, name))  # what is new comes first
    home = f"/hud/{branch.repository['full_name']}/{quote(base)}"
    made = [_pull_line(name, found.failing[name], seen[name], base, home) for name in order[:SHOWN]]
    known = sum(one.since is not None for one in seen.values())
    words = f"{_count(len(seen), found)}, {known} of them on {base} too"
    compare = f"{subject.github}/{subject.repo}/compare/{quote(base)}...{quote(subject.head_sha)}"
    lines = [BlockLine(text=words, tone="bad" if known < len(seen) else "warn"), *made]
    lines += [BlockLine(text=f"{len(seen) - SHOWN} more")] if len(seen) > SHOWN else []
    lines += [
        BlockLine(text=f"the grid of {base}", url=home),
        BlockLine(text=f"compare with {base} on GitHub", url=compare),
    ]
    return [Block(heading=f"Upstream's jobs compared with {base}", lines=tuple(lines))]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The failing jobs of a commit, and a grid of these jobs on a branch."""

    verdict: str
    jobs: int
    sharded: bool  # whether any of them has shards
    failing: dict[str, Cell]
    history: Grid

    def before(self, name: str) -> Before:
        """Return what a job did on the branch."""
        return branch_history.summarize_job(self.history, name)


async def _read_failing(
    tx: Transaction, settings: Settings, branch: Branch, line: CommitRow, history: Sequence[CommitRow]
) -> _Found:
    """Read a commit, and what failed there on the commits of a branch: most jobs need not be read."""
    options = settings.of(TrunkSettings)
    facts = await reading.read_facts(tx, settings, branch, [line], jobs=True)
    here = grid.build_grid(facts, options)
    found = here.lines[0].cells
    failing = {here.columns[at].name: cell for at, cell in sorted(found.items()) if cell.broken}
    past = grid.build_grid(grid.Facts(commits=()), options)
    if failing:
        only = None if options.ci_aliases else _columns(facts)  # an alias joins columns
        past = grid.build_grid(await reading.read_facts(tx, settings, branch, history, only=only), options)
        past = past.on_branch()
    sharded = any(cell.count for cell in found.values())
    return _Found(verdict=_verdict(here), jobs=len(found), sharded=sharded, failing=failing, history=past)


def _verdict(here: Grid) -> str:
    verdict = here.lines[0].verdict
    return "no result yet" if verdict == "none" else verdict


def _columns(facts: Facts) -> set[int]:
    return {row["column_id"] for row in facts.jobs if row["conclusion"] in FAILED}


class _Page:
    """Addresses of a commit's cells in the grid."""

    def __init__(self, home: str, sha: str, before: str | None) -> None:
        self._home, self._sha, self._before = home, sha, before

    def __call__(self, name: str) -> str:
        """Return the address of a cell; without a name of a job that of the commit's page."""
        cell = f"{self._sha[:12]}.{grid.key_of_column(name)}" if name else ""
        asked = {key: value for key, value in (("before", self._before), ("cell", cell)) if value}
        return self._home + ("?" + urlencode(asked) if asked else "") + ("#cell" if name else "")


async def _page(tx: Transaction, branch: Branch, line: CommitRow) -> _Page:
    """Return the page of the grid that a commit is on: the first one, or the one that begins with it."""
    newest, _ = await reading.newest_commits(tx, branch, before=None, limit=branch_standing.LINES)
    here = any(row["sha"] == line["sha"] for row in newest)
    home = f"/hud/{branch.repository['full_name']}/{quote(branch.name)}"
    return _Page(home, line["sha"], None if here else await rows.following(tx, line))


def _unpushed(branch: Branch, sha: str) -> CommitRow:
    """Return the head of a pull request as if it were on the branch."""
    return {
        "repository_id": branch.repository["repository_id"],
        "branch": branch.name,
        "sha": sha,
        "parent": None,
        "replaces": None,
        "at": 0,
        "title": "",
        "author": None,
        "pr_number": None,
        "folded": 0,
        "gone": False,
        "listed": False,
    }


def _commit_line(name: str, before: Before, url: str, *, first: Cell) -> BlockLine:
    ending = _ending(name, first)
    if before.since is not None:
        return BlockLine(text=f"{ending}, already since {_named(before.since)}", url=url, tone="warn")
    new = "passed on the commit before" if before.results else "no earlier result is known"
    return BlockLine(text=f"{ending}, {new}", url=url, tone="bad")


def _pull_line(name: str, cell: Cell, before: Before, base: str, home: str) -> BlockLine:
    ending = _ending(name, cell)
    column = f"{home}?{urlencode({'name': name[: hud_filter.TEXT_MOST]})}"
    if before.since is not None:
        theirs = before.cell.signature if before.cell else None
        differs = bool(cell.signature and theirs and cell.signature != theirs)
        words = f"fails on {base} {'for another reason' if differs else 'too'}, since {_named(before.since)}"
        return BlockLine(text=f"{ending}, {words}", url=column, tone="bad" if differs else "warn")
    if not before.results:
        return BlockLine(text=f"{ending}, no result on {base} is known", url=column, tone="bad")
    often = (
        f"; it failed on {before.failures} of its newest {before.results} commits there"
        if before.failures
        else ""
    )
    return BlockLine(text=f"{ending}, passes on {base}{often}", url=column, tone="bad")


def _ending(name: str, cell: Cell) -> str:
    """Return how a job ended; of a run without jobs also why, since nothing else on the page tells of it."""
    why = f" ({cell.line})" if cell.job is None and cell.line else ""
    return f"{_short(name)}: {cells.WORDS[cell.character]}{why}"


def _count(failing: int, found: _Found) -> str:
    """Return the counts; other parts of the page count every shard."""
    jobs = f"{found.jobs} jobs{' (shards counted as one)' if found.sharded else ''}"
    return f"{failing} of {jobs} {'fails' if failing == 1 else 'fail'}"


def _short(name: str) -> str:
    return escaping.shorten(name, NAME_MOST)


def _named(commit: CommitRow) -> str:
    return f"{commit['sha'][:8]} {escaping.shorten(commit['title'], TITLE_MOST)}"
