"""How a branch stands in one sentence: green or broken since when, and what is broken that does not block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bot.ci.trunk import broken_columns, grid, reading
from bot.ci.trunk.settings import TrunkSettings
from bot.core.text import duration, plural, short
from bot.oot.allowlist import rows as allowlists

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.trunk.grid import Column, Grid, Line
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.tables import CommitRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

    Tone = Literal["good", "warn", "bad", "wait", "idle"]

LINES = 50  # newest commits that are looked at
BLOCKING = 4  # level of the backends that merging waits for
DECIDED = frozenset(("green", "red"))
State = Literal["green", "broken", "red", "running", "unknown"]
HEADLINES: dict[State, str] = {
    "green": "is green since",
    "broken": "is broken since",
    "red": "is red since",
    "running": "has no complete result yet",
    "unknown": "has no result",
}


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


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a branch stands: what blocks and what is only watched apart."""

    branch: str
    state: State  # of upstream's blocking jobs
    since: CommitRow | None = None  # where this began, None where there is no result
    at_least: bool = False  # whether it began before what is looked at
    last_good: CommitRow | None = None  # the newest green commit before `since`, where it is not green
    unfinished: int = 0  # newer commits whose blocking jobs still run
    troubles: tuple[Trouble, ...] = ()  # in the order of the grid

    @property
    def blocking(self) -> tuple[Trouble, ...]:
        """What is broken and blocks."""
        return tuple(one for one in self.troubles if one.blocks)

    @property
    def watched(self) -> tuple[Trouble, ...]:
        """What is broken and blocks nothing."""
        return tuple(one for one in self.troubles if not one.blocks)

    @property
    def tone(self) -> Tone:
        """Its sign and colour: bad only where something blocks."""
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
        """What is broken, counted: blocking jobs and backends, then watched ones; never one number for both."""
        counted: list[tuple[Tone, int, str]] = [
            ("bad", sum(one.backend is None for one in self.blocking), "blocking job"),
            ("bad", len(_backends(self.blocking)), "blocking backend"),
            ("warn", len(_backends(self.watched)), "watching backend"),
            ("warn", sum(one.backend is None for one in self.watched), "watched job"),
        ]
        return tuple((tone, _counted(number, noun)) for tone, number, noun in counted if number)


def describe_standing(standing: Standing, *, now: int) -> str:
    """Return the sentence, as in "main is green since a4312ff (16 min), 1 watching backend is broken"."""
    since = standing.since
    age = "" if since is None else f" {short(since['sha'])} ({duration(max(0, now - since['at']) / 1000)})"
    return ", ".join([f"{standing.headline}{age}", *(words for _, words in standing.counts)])


async def read_standing(tx: Transaction, settings: Settings, branch: Branch) -> Standing:
    """Read how a branch stands: the one place where this is decided."""
    commits, _ = await reading.newest_commits(tx, branch, before=None, limit=LINES)
    facts = await reading.read_facts(tx, settings, branch, commits)
    found = grid.build_grid(facts, settings.of(TrunkSettings))
    return judge_branch(found, branch.name, await blocking_backends(tx))


async def blocking_backends(tx: Transaction) -> frozenset[str]:
    """Return what the backends that merging waits for are called in the grid, case folded."""
    allowlist = await allowlists.in_force(tx)
    entries = allowlist.at(BLOCKING) if allowlist else ()
    return frozenset((entry.device or entry.repo).casefold() for entry in entries)


def blocks_merging(column: Column, backends: Collection[str]) -> bool:
    """Whether merging waits for a column: a blocking job of upstream, or a job of one of these backends."""
    return column.blocking or (column.backend is not None and column.backend.casefold() in backends)


def judge_branch(found: Grid, branch: str, blocking: Collection[str]) -> Standing:
    """Return how a branch stands, given its newest commits and the names of the backends that block."""
    standing = found.on_branch()
    troubles = tuple(
        trouble
        for place, column in enumerate(standing.columns)
        if column.group != grid.UNSTABLE and (trouble := _trouble(standing, place, column, blocking))
    )
    jobs = [one for one in troubles if one.blocks and one.backend is None]
    return _judge(standing.lines, branch, troubles, jobs)


def _judge(
    lines: Sequence[Line], branch: str, troubles: tuple[Trouble, ...], jobs: Sequence[Trouble]
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
    state: State = "green" if verdict == "green" else "red"
    if jobs:
        places = {line.commit["sha"]: at for at, line in enumerate(lines)}
        began = max(places[one.first_bad["sha"]] for one in jobs)
        state, oldest = "broken", lines[began].commit
        other = next((at for at in decided if at > began and lines[at].verdict == "green"), None)
    return Standing(
        branch=branch,
        state=state,
        since=oldest,
        at_least=other is None and len(lines) >= LINES,
        last_good=None if state == "green" or other is None else lines[other].commit,
        unfinished=unfinished,
        troubles=troubles,
    )


def _trouble(found: Grid, place: int, column: Column, blocking: Collection[str]) -> Trouble | None:
    cells = found.column(place)
    breakage = broken_columns.breakage(cells)
    if breakage is None:
        return None
    at, newest = next((at, cell) for at, cell in enumerate(cells) if cell is not None and cell.broken)
    return Trouble(
        name=column.name,
        backend=column.backend,
        blocks=blocks_merging(column, blocking),
        first_bad=found.lines[breakage.first_bad].commit,
        last_good=None if breakage.last_good is None else found.lines[breakage.last_good].commit,
        newest=found.lines[at].commit,
        failures=breakage.failures,
        line=newest.line,
    )


def _backends(troubles: Sequence[Trouble]) -> set[str]:
    return {one.backend for one in troubles if one.backend is not None}


def _counted(number: int, noun: str) -> str:
    return f"{plural(number, noun)} {'is' if number == 1 else 'are'} broken"
