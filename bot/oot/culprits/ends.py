"""The commits that a culprit lies between: the last on which the signal was good, and the first on which it was bad."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.trunk import broken_columns, lines, reading
from bot.ci.trunk.store import rows as trunk_rows
from bot.core import text
from bot.oot.culprits import job_runs
from bot.oot.culprits.refused import Refused, UnknownCommit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.tables import CommitRow, Failure
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.culprits.history import History
    from bot.oot.culprits.tables import Signal

COMMITS_MOST = 4_000  # of a search
SHA = re.compile(r"[0-9a-f]{7,64}")


class Ends(NamedTuple):
    """The two commits."""

    good: str
    bad: str


async def find_ends(
    tx: Transaction, settings: Settings, seen: History, branch: Branch, signal: Signal, *, good: str, bad: str
) -> Ends:
    """Return both ends; those that are not named are what is known. Raises Refused."""
    named_good = await _named(tx, seen, branch, good) if good else None
    named_bad = await _named(tx, seen, branch, bad) if bad else None
    if named_good and named_good == named_bad:
        raise Refused(f"both ends are {text.short(named_good)}: name a good commit and a later bad one")
    if named_good is None or named_bad is None:
        known_good, known_bad = await _known(tx, settings, seen, branch, signal)
        named_bad = named_bad or known_bad
        if named_bad is None:
            raise Refused(
                f"{signal['test'] or signal['job']} does not fail on the newest commits of {branch.name}"
            )
        named_good = named_good or known_good
        if named_good is None:
            raise Refused(
                f"no commit of {branch.name} is known on which {signal['test'] or signal['job']} passed before: "
                f"name one, as in <good>..{text.short(named_bad)}"
            )
    commits = await read_range(tx, branch, good=named_good, bad=named_bad)
    if commits is None:
        raise Refused(
            f"{text.short(named_good)} is not before {text.short(named_bad)} on {branch.name}, "
            f"or more than {COMMITS_MOST:,} commits are between them"
        )
    return Ends(named_good, named_bad)


async def read_range(tx: Transaction, branch: Branch, *, good: str, bad: str) -> list[CommitRow] | None:
    """Return the commits of a branch from a good to a bad one, oldest first; None where they are not on it so."""
    last = await trunk_rows.commit(tx, branch.repository["repository_id"], branch.name, bad)
    if last is None or last["gone"]:
        return None
    size = 200
    while True:
        older, more = await reading.newest_commits(tx, branch, before=bad, limit=min(size, COMMITS_MOST))
        found = [last, *older]
        place = next((at for at, row in enumerate(found) if row["sha"] == good), None)
        if place is not None:
            break
        if not more or size >= COMMITS_MOST:
            return None
        size *= 4
    gone = lines.gone_commits(found)
    if {good, bad} & gone:
        return None
    return [row for row in reversed(found[: place + 1]) if row["sha"] not in gone]


async def failure_on(
    tx: Transaction, settings: Settings, branch: Branch, signal: Signal, sha: str
) -> Failure | None:
    """Return how a signal fails on a commit, where a log says so."""
    runs = await job_runs.read_job_runs(tx, settings, branch, signal, [sha])
    return next((run.failure for run in runs if run.word == "bad" and run.failure), None)


async def _named(tx: Transaction, seen: History, branch: Branch, written: str) -> str:
    sha = written.casefold()
    if not SHA.fullmatch(sha):
        raise Refused(f"{written[:64]} is not a commit: write at least 7 digits of its SHA")
    found = {line.commit["sha"] for line in seen.grid.lines if line.commit["sha"].startswith(sha)}
    if len(found) > 1:
        raise Refused(f"{written} is the beginning of several commits: write more of it")
    if found:
        return found.pop()
    row = await trunk_rows.commit(tx, branch.repository["repository_id"], branch.name, sha)
    if row is None:
        raise UnknownCommit(sha, branch.name)
    if row["gone"]:
        raise Refused(f"{text.short(sha)} is no longer on {branch.name}")
    return row["sha"]


async def _known(
    tx: Transaction, settings: Settings, seen: History, branch: Branch, signal: Signal
) -> tuple[str | None, str | None]:
    """Return the last good and the first bad commit, by what ran; None where there is none."""
    if not signal["test"] and not signal["signature"]:
        change = broken_columns.failing_since(seen.column(signal["job"]))
        if change is None:
            return None, None
        good = change.last_good
        return (
            None if good is None else seen.grid.lines[good].commit["sha"],
            seen.grid.lines[change.first_bad].commit["sha"],
        )
    shas = [line.commit["sha"] for line in seen.grid.lines]
    runs = await job_runs.read_job_runs(tx, settings, branch, signal, shas)
    return _by_runs(shas, runs)


def _by_runs(shas: Sequence[str], runs: Sequence[job_runs.JobRun]) -> tuple[str | None, str | None]:
    """Return the ends of the newest streak of failures; commits are given newest first."""
    good = {run.sha for run in runs if run.word == "good"}
    failing = {run.sha for run in runs if run.word == "bad"} - good
    bad = None
    for sha in shas:
        if sha in good:
            return (sha if bad else None), bad
        if sha in failing:
            bad = sha
    return None, bad
