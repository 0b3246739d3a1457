"""What the grid knows of the failures of commits and pull requests: since when the jobs fail that failed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from bot.core import escaping
from bot.jobs import branch_history, branch_reads, branch_standing, commit_cells, grid, job_names, rows
from bot.jobs.cells import CONCLUSIONS
from bot.jobs.settings import TrunkSettings
from bot.web.blocks import BlockLine, CommitAbout
from bot.web.failures import Failures, FailureStanding, JobKey, JobRemark, ReasonLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_history import JobHistory
    from bot.jobs.branch_reads import Branch
    from bot.jobs.cells import Cell
    from bot.jobs.grid import Facts, Grid
    from bot.jobs.tables import CommitRow
    from bot.web.blocks import CommitSubject, Tone
    from bot.web.failures import FailuresSubject

HISTORY = 50  # commits of the branch that are looked at
TITLE_MOST = 60
FAILED = frozenset(
    CONCLUSIONS.index(word) for word in ("failure", "timed_out", "startup_failure", "action_required")
)


async def about_commit(tx: Transaction, subject: CommitSubject) -> CommitAbout | None:
    """Return title, author, branch and parent of a commit of a branch."""
    place = await branch_history.find_line(tx, subject.repo, subject.sha)
    if place is None:
        return None
    branch, line = place
    return CommitAbout(
        title=line["title"],
        author=line["author"] or "",
        branch=branch.name,
        at=line["at"],
        parent=line["parent"],
        pull=line["pr_number"],
    )


async def find_failures(tx: Transaction, subject: FailuresSubject) -> Failures:
    """Return how the jobs that fail on a commit fared before it, or on the base branch of a pull request."""
    return await (_on_base(tx, subject) if subject.of_pull else _on_branch(tx, subject))


async def _on_branch(tx: Transaction, subject: FailuresSubject) -> Failures:
    found_line = await branch_history.find_line(tx, subject.repo, subject.sha)
    if found_line is None:
        return Failures()
    branch, line = found_line
    older, _ = await branch_reads.newest_commits(tx, branch, before=line["sha"], limit=HISTORY)
    failing = await _read_failing(tx, subject.settings, branch, line, older)
    page = await _cell_addresses(tx, branch, line)
    words = f"{failing.verdict} in the grid of {branch.name}"
    tone: Tone = {"green": "good", "red": "bad", "running": "wait"}.get(failing.verdict, "idle")  # type: ignore[assignment]
    remarks = _remarks(
        failing, subject, lambda name, _: _standing_on_branch(failing.before(name), page(name))
    )
    return Failures(jobs=remarks, links=[BlockLine(text=words, url=page(""), tone=tone)])


async def _on_base(tx: Transaction, subject: FailuresSubject) -> Failures:
    base = subject.base_ref
    branch = await branch_history.find_branch_of(tx, subject.repo, base) if base else None
    if branch is None or base is None:
        return Failures()
    newest, _ = await branch_reads.newest_commits(tx, branch, before=None, limit=HISTORY)
    failing = await _read_failing(tx, subject.settings, branch, _unpushed(branch, subject.sha), newest)
    if not failing.failing:
        return Failures()
    home = f"/hud/{branch.repository['full_name']}/{quote(base)}"

    def standing(name: str, cell: Cell) -> FailureStanding:
        column = f"{home}?{urlencode({'name': name[: grid.FILTER_MOST]})}"
        return _standing_on_base(cell, failing.before(name), base, column)

    compare = f"{subject.github}/{subject.repo}/compare/{quote(base)}...{quote(subject.sha)}"
    links = [
        BlockLine(text=f"the grid of {base}", url=home),
        BlockLine(text=f"compare with {base} on GitHub", url=compare),
    ]
    return Failures(jobs=_remarks(failing, subject, standing), links=links)


def _remarks(
    failing_jobs: _FailingJobs, subject: FailuresSubject, standing: Callable[[str, Cell], FailureStanding]
) -> list[JobRemark]:
    """Return a remark for each failing job; all shards of a column get the same one."""
    said = {name: standing(name, cell) for name, cell in failing_jobs.failing.items()}
    lines = {
        name: _log_line(cell, said[name].url or "")
        for name, cell in failing_jobs.failing.items()
        # of a run without jobs, or of another CI, unless its log says more
        if cell.line and (cell.job is None or (name in failing_jobs.elsewhere and not cell.signature))
    }
    jobs = [(key, name) for key, name in failing_jobs.jobs_of(subject) if name in said]
    remarks = [JobRemark(job=key, line=lines.get(name), standing=said[name]) for key, name in jobs]
    repo, shown = subject.repo.lower(), {name for _, name in jobs}
    alone = [
        JobRemark(job=JobKey(repo, "", 1, name), line=line, standing=said[name], alone=True)
        for name, line in lines.items()
        if name not in shown  # nothing else on the page tells of it
    ]
    return remarks + alone


def _log_line(cell: Cell, page: str) -> ReasonLine:
    return ReasonLine(kind="", text=cell.line or "", place="its runs", url=page, page=page)


@dataclass(frozen=True, kw_only=True)
class _FailingJobs:
    """The failing jobs of a commit, and a grid of these jobs on a branch."""

    verdict: str
    failing: dict[str, Cell]
    elsewhere: frozenset[str]  # of these: the jobs of other CIs
    history: Grid
    facts: Facts
    options: TrunkSettings

    def jobs_of(self, subject: FailuresSubject) -> Iterator[tuple[JobKey, str]]:
        """Yield the jobs of the commit with the names of their columns."""
        runs = commit_cells.describe_runs(self.facts.runs)
        for placed in commit_cells.place_jobs(self.facts.jobs, runs, shards=False):
            name = job_names.column_name(self.facts.columns[placed.column], self.options)
            if name and (key := subject.upstream_jobs.get(placed.row["job_id"])):
                yield key, name
        for column, row, _ in grid.place_backend_jobs(self.facts, shards=False):
            repo = row["downstream_repo"].lower()
            yield JobKey(repo, row["run_id"], row["run_attempt"], row["job_name"]), column

    def before(self, name: str) -> JobHistory:
        """Return what a job did on the branch."""
        return branch_history.summarize_job(self.history, name)


async def _read_failing(
    tx: Transaction, settings: Settings, branch: Branch, line: CommitRow, history: Sequence[CommitRow]
) -> _FailingJobs:
    """Read a commit, and the history of what failed there: most jobs need not be read."""
    options = settings.of(TrunkSettings)
    facts = await branch_reads.read_facts(tx, settings, branch, [line], jobs=True)
    here = grid.build_grid(facts, options)
    on_commit = here.lines[0].cells
    failing = {here.columns[at].name: cell for at, cell in sorted(on_commit.items()) if cell.broken}
    past = grid.build_grid(grid.Facts(commits=()), options)
    if failing:
        only = None if options.ci_aliases else _columns(facts)  # an alias joins columns
        past = grid.build_grid(
            await branch_reads.read_facts(tx, settings, branch, history, only=only), options
        )
        past = past.on_branch()
    return _FailingJobs(
        verdict=_verdict(here),
        failing=failing,
        elsewhere=frozenset(column.name for column in here.columns if column.source == "elsewhere"),
        history=past,
        facts=facts,
        options=options,
    )


def _verdict(here: Grid) -> str:
    verdict = here.lines[0].verdict
    return "no result yet" if verdict == "none" else verdict


def _columns(facts: Facts) -> set[int]:
    return {row["column_id"] for row in facts.jobs if row["conclusion"] in FAILED}


class _CellAddresses:
    """Addresses of a commit's cells in the grid."""

    def __init__(self, home: str, sha: str, before: str | None) -> None:
        self._home, self._sha, self._before = home, sha, before

    def __call__(self, name: str) -> str:
        """Return the address of a job's cell; without a name, that of the commit's page."""
        cell = f"{self._sha[:12]}.{grid.key_of_column(name)}" if name else ""
        values = {key: value for key, value in (("before", self._before), ("cell", cell)) if value}
        return self._home + ("?" + urlencode(values) if values else "") + ("#cell" if name else "")


async def _cell_addresses(tx: Transaction, branch: Branch, line: CommitRow) -> _CellAddresses:
    """Return the page of the grid with a commit: the first one, or the one that begins with the commit."""
    newest, _ = await branch_reads.newest_commits(
        tx, branch, before=None, limit=branch_standing.STANDING_LINES
    )
    here = any(row["sha"] == line["sha"] for row in newest)
    home = f"/hud/{branch.repository['full_name']}/{quote(branch.name)}"
    return _CellAddresses(home, line["sha"], None if here else await rows.following(tx, line))


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


def _standing_on_branch(before: JobHistory, url: str) -> FailureStanding:
    if before.since is not None:
        return FailureStanding(word="known", why=f"fails since {_named(before.since)}", url=url, tone="warn")
    if before.results:
        return FailureStanding(word="new", why="passed on the commit before", url=url)
    return FailureStanding(word="", why="no earlier result is known", url=url)


def _standing_on_base(cell: Cell, before: JobHistory, base: str, url: str) -> FailureStanding:
    if before.since is not None:
        theirs = before.cell.signature if before.cell else None
        if cell.signature and theirs and cell.signature != theirs:
            why = f"fails on {base} for another reason, since {_named(before.since)}"
            return FailureStanding(word="", why=why, url=url)
        why = f"fails on {base} too, since {_named(before.since)}"
        return FailureStanding(word="known", why=why, url=url, tone="warn")
    if not before.results:
        return FailureStanding(word="", why=f"no result on {base} is known", url=url)
    often = f"; failed on {before.failures} of its newest {before.results} commits" if before.failures else ""
    return FailureStanding(word="new", why=f"passes on {base}{often}", url=url)


def _named(commit: CommitRow) -> str:
    return f"{commit['sha'][:8]} {escaping.shorten(commit['title'], TITLE_MOST)}"
