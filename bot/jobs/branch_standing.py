"""How a branch stands: green or broken since when, what is broken that does not block, and the notices about it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

from cachetools import LRUCache

from bot.context import Resource
from bot.core import text
from bot.core.errors import Rejected
from bot.core.feature import Condition, ConditionSubject
from bot.core.text import duration, plural, short
from bot.ingest import repositories
from bot.jobs import branch_history, branch_reads, branches, column_changes, grid, rows
from bot.jobs.branch_reads import Branch
from bot.jobs.settings import TrunkSettings
from bot.oot.allowlist import versions as allowlists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

    from bot.context import Context
    from bot.core.feature import ConditionScope
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.grid import Column, Grid, GridLine
    from bot.jobs.tables import CommitRow
    from bot.oot.allowlist.entry import Entry
    from bot.web.access import Hidden

    Tone = Literal["good", "warn", "bad", "wait", "idle"]

STANDING_LINES = 50  # newest commits that are looked at
BLOCKING = 4  # level of the backends that merging waits for
DECIDED = frozenset(("green", "red"))
BranchState = Literal["green", "broken", "red", "running", "unknown"]
HEADLINES: dict[BranchState, str] = {
    "green": "is green since",
    "broken": "is broken since",
    "red": "is red since",
    "running": "has no complete result yet",
    "unknown": "has no result",
}
BROKEN_MOST = 10  # branches of an upstream beside the default one
BROKEN_EVENT = "trunk_broken"
MOST_KNOWN = 200  # branches that are remembered
KNOWN_FOR = 600_000  # milliseconds after which a branch is read again, though nothing seems to have changed
STANDINGS: Resource[Standings] = Resource("branch standings", lambda _context: Standings())


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A job that is broken on a branch."""

    name: str  # of its column
    backend: str | None  # what the backend whose job it is goes by; None: it is no backend's
    blocks: bool  # whether merging waits for it
    first_bad: CommitRow
    last_good: CommitRow | None
    newest: CommitRow  # on which it failed last
    failures: int  # in a row
    line: str | None  # why it failed last

    @property
    def key(self) -> str:
        """The column in the addresses of its cells."""
        return grid.key_of_column(self.name)


class StandingBranch(NamedTuple):
    """A branch, and how it stands."""

    branch: Branch
    standing: Standing


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a branch stands; what blocks is kept apart from what is only watched."""

    branch: str
    state: BranchState  # of upstream's blocking jobs
    since: CommitRow | None = None  # where this began, None where there is no result
    at_least: bool = False  # whether it began before what is looked at
    last_good: CommitRow | None = None  # the newest green commit before `since`, where it is not green
    unfinished: int = 0  # newer commits whose blocking jobs still run
    troubles: tuple[Trouble, ...] = ()  # in the order of the grid
    passing: frozenset[str] = frozenset()  # jobs that are known to pass on the newest commits

    @property
    def blocking(self) -> tuple[Trouble, ...]:
        """What is broken and blocks."""
        return tuple(trouble for trouble in self.troubles if trouble.blocks)

    @property
    def watched(self) -> tuple[Trouble, ...]:
        """What is broken and blocks nothing."""
        return tuple(trouble for trouble in self.troubles if not trouble.blocks)

    @property
    def tone(self) -> Tone:
        """Its sign and colour; bad only where something blocks."""
        if self.blocking or self.state in {"broken", "red"}:
            return "bad"
        if self.state == "green":
            return "good"
        return "wait" if self.state == "running" else "idle"

    @property
    def headline(self) -> str:
        """The words before the commit, as in "main is green since"."""
        words = f"{self.branch} {HEADLINES[self.state]}"
        return f"{words} at least" if self.at_least else words

    @property
    def counts(self) -> tuple[tuple[Tone, str], ...]:
        """How many jobs and backends are broken: blocking ones, then watched ones, never in one number."""
        counted: list[tuple[Tone, int, str]] = [
            ("bad", sum(trouble.backend is None for trouble in self.blocking), "blocking job"),
            ("bad", len(_backends(self.blocking)), "blocking backend"),
            ("warn", len(_backends(self.watched)), "watching backend"),
            ("warn", sum(trouble.backend is None for trouble in self.watched), "watched job"),
        ]
        return tuple((tone, _counted(number, noun)) for tone, number, noun in counted if number)


def describe_standing(standing: Standing, *, now: int) -> str:
    """Return the sentence, as in "main is green since a4312ff (16 min), 1 watching backend is broken"."""
    since = standing.since
    age = "" if since is None else f" {short(since['sha'])} ({duration(max(0, now - since['at']) / 1000)})"
    return ", ".join([f"{standing.headline}{age}", *(words for _, words in standing.counts)])


async def read_standing(tx: Transaction, settings: Settings, branch: Branch) -> Standing:
    """Read how a branch stands. Nothing else decides this."""
    commits, _ = await branch_reads.newest_commits(tx, branch, before=None, limit=STANDING_LINES)
    facts = await branch_reads.read_facts(tx, settings, branch, commits)
    newest = grid.build_grid(facts, settings.of(TrunkSettings))
    return judge_branch(newest, branch.name, await blocking_backends(tx))


async def blocking_backends(tx: Transaction) -> frozenset[str]:
    """Return the case folded names that the backends which merging waits for have in the grid."""
    allowlist = await allowlists.read_in_force(tx)
    entries = allowlist.at(BLOCKING) if allowlist else ()
    return frozenset((entry.device or entry.repo).casefold() for entry in entries)


def blocks_merging(column: Column, backends: Collection[str]) -> bool:
    """Whether merging waits for a column: a blocking job of upstream, or a job of one of these backends."""
    return column.blocking or (column.backend is not None and column.backend.casefold() in backends)


def judge_branch(whole: Grid, branch: str, blocking: Collection[str]) -> Standing:
    """Return how a branch stands, given its newest commits and the names of the backends that block."""
    standing = whole.on_branch()
    troubles = tuple(
        trouble
        for place, column in enumerate(standing.columns)
        if column.group != grid.UNSTABLE and (trouble := _trouble(standing, place, column, blocking))
    )
    jobs = [trouble for trouble in troubles if trouble.blocks and trouble.backend is None]
    passing = frozenset(
        column.name
        for place, column in enumerate(standing.columns)
        if branch_history.column_state(standing.column(place)) is branch_history.ColumnState.OK
    )
    return replace(_judge(standing.lines, branch, troubles, jobs), passing=passing)


async def read_standings(
    tx: Transaction, settings: Settings, hidden: Hidden, *, repo: str = ""
) -> list[StandingBranch]:
    """Return how the visible branches of every upstream, or of one, stand: the default branch of each first."""
    broken: dict[str, set[str]] = {}
    for (full_name, name, _), count in (await column_changes.read_counts(tx, settings, hidden)).items():
        if count:
            broken.setdefault(full_name.casefold(), set()).add(name)
    standings = []
    for upstream in settings.upstream_repo:
        if repo and upstream.casefold() != repo.casefold():
            continue
        with contextlib.suppress(Rejected):
            default = await branch_reads.find_branch(tx, hidden, upstream, "")
            others = sorted(broken.get(default.repository["full_name"].casefold(), set()) - {default.name})
            for name in [*filter(None, [default.name]), *others[:BROKEN_MOST]]:
                branch = await branch_reads.find_branch(tx, hidden, upstream, name)
                standings.append(StandingBranch(branch, await read_standing(tx, settings, branch)))
    return standings


class Standings:
    """How branches stand, cached until a job of their newest commits changes."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[int, str], tuple[object, int, Standing]] = LRUCache(MOST_KNOWN)

    async def close(self) -> None:
        """Nothing is open."""

    async def read(self, tx: Transaction, settings: Settings, branch: Branch) -> Standing:
        """Return how a branch stands."""
        key = (branch.repository["repository_id"], branch.name)
        mark = await rows.read_mark(tx, *key)
        known: tuple[object, int, Standing] | None = self._known.get(key)
        sees_all = settings.of(TrunkSettings).ci_checks == "off"  # a check of another App leaves no mark
        if known and sees_all and known[0] == mark and 0 <= tx.now - known[1] < KNOWN_FOR:
            return known[2]
        standing = await read_standing(tx, settings, branch)
        self._known[key] = (mark, tx.now, standing)
        return standing


async def read_conditions(context: Context, tx: Transaction, scope: ConditionScope) -> list[Condition]:
    """Return the jobs that are broken on watched branches, and the reported ones that no longer are."""
    allowlist = await allowlists.read_in_force(tx)
    entries = allowlist.entries if allowlist else ()
    labels = {(entry.device or entry.repo).casefold(): entry for entry in entries}
    conditions: list[Condition] = []
    async for branch in watched_branches(tx, context.settings, scope):
        standing = await context.resource(STANDINGS).read(tx, context.settings, branch)
        conditions += _broken(branch, standing, labels, scope)
        conditions += _repaired(branch, standing, labels, scope)
    return conditions


async def watched_branches(
    tx: Transaction, settings: Settings, scope: ConditionScope
) -> AsyncIterator[Branch]:
    """Yield the watched branches that may be shown."""
    for repo in settings.upstream_repo:
        repository = (
            None
            if scope.hidden.has(repo)
            else await rows.repository(tx, await repositories.read_ids(tx, repo))
        )
        if repository is None or scope.hidden.has(repository["full_name"], repository["repository_id"]):
            continue
        names = frozenset(await repositories.read_names_of_same(tx, repository["full_name"]))
        for name in await branches.watched_branch_names(tx, settings, repository):
            yield Branch(repository=repository, names=names, name=name)


def _judge(
    lines: Sequence[GridLine], branch: str, troubles: tuple[Trouble, ...], jobs: Sequence[Trouble]
) -> Standing:
    decided = [at for at, line in enumerate(lines) if line.verdict in DECIDED]
    unfinished = sum(line.verdict == "running" for line in lines[: decided[0] if decided else len(lines)])
    if not decided:
        return Standing(
            branch=branch,
            state="running" if unfinished else "unknown",
            unfinished=unfinished,
            troubles=troubles,
        )
    verdict = lines[decided[0]].verdict
    other = next((at for at in decided if lines[at].verdict != verdict), None)
    oldest = lines[max(at for at in decided if other is None or at < other)].commit
    state: BranchState = "green" if verdict == "green" else "red"
    if jobs:
        places = {line.commit["sha"]: at for at, line in enumerate(lines)}
        began = max(places[job.first_bad["sha"]] for job in jobs)
        state, oldest = "broken", lines[began].commit
        other = next((at for at in decided if at > began and lines[at].verdict == "green"), None)
    return Standing(
        branch=branch,
        state=state,
        since=oldest,
        at_least=other is None and len(lines) >= STANDING_LINES,
        last_good=None if state == "green" or other is None else lines[other].commit,
        unfinished=unfinished,
        troubles=troubles,
    )


def _trouble(standing: Grid, place: int, column: Column, blocking: Collection[str]) -> Trouble | None:
    cells = standing.column(place)
    breakage = branch_history.breakage(cells)
    if breakage is None:
        return None
    at, newest = next((at, cell) for at, cell in enumerate(cells) if cell is not None and cell.broken)
    return Trouble(
        name=column.name,
        backend=column.backend,
        blocks=blocks_merging(column, blocking),
        first_bad=standing.lines[breakage.first_bad].commit,
        last_good=None if breakage.last_good is None else standing.lines[breakage.last_good].commit,
        newest=standing.lines[at].commit,
        failures=breakage.failures,
        line=newest.line,
    )


def _backends(troubles: Sequence[Trouble]) -> set[str]:
    return {trouble.backend for trouble in troubles if trouble.backend is not None}


def _counted(number: int, noun: str) -> str:
    return f"{plural(number, noun)} {'is' if number == 1 else 'are'} broken"


def _broken(
    branch: Branch, standing: Standing, labels: Mapping[str, Entry], scope: ConditionScope
) -> Iterator[Condition]:
    for trouble in standing.troubles:
        entry = labels.get((trouble.backend or "").casefold())
        if entry is not None and scope.hidden.has(entry.repo):
            continue
        which = "" if trouble.blocks else "watched jobs on "
        yield Condition(
            event=BROKEN_EVENT,
            key=_condition_key(branch, trouble.name),
            holds=True,
            heading=f"{which}{branch.name} of {branch.repository['full_name']} broke",
            lines=(_condition_line(trouble),),
            since=trouble.first_bad["at"],
            subject=_condition_subject(branch, entry, trouble.backend),
        )


def _repaired(
    branch: Branch, standing: Standing, labels: Mapping[str, Entry], scope: ConditionScope
) -> Iterator[Condition]:
    """Yield the jobs of a branch that were reported as broken and now pass. Without a result, nothing is repaired."""
    for name in sorted(standing.passing):
        key = _condition_key(branch, name)
        if key not in scope.told_of(BROKEN_EVENT):
            continue
        backend = name.split(" / ")[1] if name.startswith("backends / ") else None
        yield Condition(
            event=BROKEN_EVENT,
            key=key,
            holds=False,
            heading=f"{branch.name} of {branch.repository['full_name']}: jobs are repaired",
            lines=(name,),
            subject=_condition_subject(branch, labels.get((backend or "").casefold()), backend),
        )


def _condition_subject(branch: Branch, entry: Entry | None, backend: str | None) -> ConditionSubject:
    repo = branch.repository["full_name"]
    return ConditionSubject(
        repo=repo,
        branch=branch.name,
        backend=entry.repo if entry else backend or "",
        oncalls=entry.oncalls if entry else (),
        path=f"/hud/{repo}/{quote(branch.name)}",
    )


def _condition_line(trouble: Trouble) -> str:
    good = f", last good {text.short(trouble.last_good['sha'])}" if trouble.last_good else ""
    why = f": {trouble.line}" if trouble.line else ""
    return f"{trouble.name} fails since {text.short(trouble.first_bad['sha'])}{good}{why}"


def _condition_key(branch: Branch, name: str) -> str:
    """Return the key of a broken job; no name of a branch has a colon."""
    return f"{branch.repository['repository_id']}:{branch.name}:{name}"
