"""Starting and cancelling a search: what a person named is looked up, or refused with the reason."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bot.core import text
from bot.jobs import branch_history, branch_reads, grid
from bot.jobs import rows as branch_rows
from bot.oot.allowlist import versions as allowlists
from bot.oot.allowlist.entry import BisectTerms
from bot.oot.culprits import job_runs, rows, signals
from bot.oot.culprits.signals import NAME_MOST, nearest_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.tables import CommitRow, Failure
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.culprits.signals import History
    from bot.oot.culprits.tables import BisectRow, Signal

FAILING_READ = 20  # newest commits with a failure whose tests are looked at
COMMITS_MOST = 4_000  # of a search
SHA = re.compile(r"[0-9a-f]{7,64}")
SEARCH_KIND = "bisect"  # of the task
OURSELVES = "ootbot"  # who asks where the entry says auto
UPSTREAM_WORDS = frozenset({"upstream", "ci"})
OPEN_MOST = 20  # searches of one repository at once
REASON_MOST = 300  # characters
LEAST_LEVEL = 2


class Refused(Exception):
    """Nothing was done; the message says why, for the person who asked."""


@dataclass(frozen=True, kw_only=True)
class SignalPlace:
    """Where a signal is looked for."""

    branch: Branch
    backend: str  # empty: upstream's own CI
    label: str  # what people call it

    def signal(self, job: str, *, test: str = "", signature: str = "") -> Signal:
        """Return a signal there."""
        return {
            "repository_id": self.branch.repository["repository_id"],
            "branch": self.branch.name,
            "backend": self.backend,
            "job": job,
            "test": test,
            "signature": signature,
        }


class Ends(NamedTuple):
    """The two commits."""

    good: str
    bad: str


@dataclass(frozen=True, kw_only=True)
class WantedSearch:
    """What a search is asked for with."""

    repo: str
    backend: str  # device or owner/repo; `upstream` for its own CI
    what: str = ""  # a job, or a test; empty: the one job that fails
    signature: str = ""  # of the failure; empty: any
    branch: str = ""  # empty: the default one
    good: str = ""  # beginnings of SHAs; empty: by what is known
    bad: str = ""
    by: str
    reason: str = ""
    comment_on: int | None = None


@dataclass(frozen=True, kw_only=True)
class StartedSearch:
    """A search that was asked for."""

    row: BisectRow
    is_new: bool  # else it was under way


class UnknownCommit(Refused):
    """A commit is not known to be on the branch; GitHub may know more."""

    def __init__(self, sha: str, branch: str) -> None:
        super().__init__(f"{sha} is not a commit of {branch} here")
        self.sha = sha
        self.branch = branch


async def find_signal(
    tx: Transaction,
    settings: Settings,
    seen: History,
    place: SignalPlace,
    what: str,
    *,
    signature: str,
    of_range: bool,
) -> Signal:
    """Find the job or test of this name, or without a name the job that fails. Raises Refused.

    If the commits are named (`of_range`), a job need not fail on the newest ones.
    """
    what = " ".join(what.split())
    if len(what) > NAME_MOST:
        raise Refused(f"a name has at most {NAME_MOST} characters")
    if not seen.jobs:
        raise Refused(f"no job of {place.label} has a result on {place.branch.name}")
    if not what:
        return place.signal(_only_failing(seen, place), signature=signature)
    if jobs := _named_jobs(seen.jobs, what):
        if len(jobs) > 1:
            raise Refused(f"{place.label} has several jobs called {what}: {text.listing(sorted(jobs))}")
        return place.signal(jobs[0], signature=signature)
    failing = seen.jobs if of_range else seen.failing_jobs()
    for job in failing:
        signal = place.signal(job, test=what)
        shas = _failing_commits(seen, job)
        runs = await job_runs.read_job_runs(tx, settings, place.branch, signal, shas)
        if any(run.word == "bad" for run in runs):
            return signal
    tests = await _failing_tests(tx, seen, place, failing)
    near = text.listing(nearest_names(what, [*seen.jobs, *tests]))
    raise Refused(
        f"{place.label} has no job called {what}, and no test of that name fails on {place.branch.name}; "
        f"the nearest names are: {near}"
    )


async def find_ends(
    tx: Transaction, settings: Settings, seen: History, branch: Branch, signal: Signal, *, good: str, bad: str
) -> Ends:
    """Return both ends, taking those not named from what is known. Raises Refused."""
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
    """Return a branch's commits from a good to a bad one, oldest first; None if they are not on it in that order."""
    last = await branch_rows.commit(tx, branch.repository["repository_id"], branch.name, bad)
    if last is None or last["gone"]:
        return None
    size = 200
    while True:
        older, more = await branch_reads.newest_commits(tx, branch, before=bad, limit=min(size, COMMITS_MOST))
        commits = [last, *older]
        place = next((at for at, row in enumerate(commits) if row["sha"] == good), None)
        if place is not None:
            break
        if not more or size >= COMMITS_MOST:
            return None
        size *= 4
    gone = grid.gone_commits(commits)
    if {good, bad} & gone:
        return None
    return [row for row in reversed(commits[: place + 1]) if row["sha"] not in gone]


async def failure_on(
    tx: Transaction, settings: Settings, branch: Branch, signal: Signal, sha: str
) -> Failure | None:
    """Return how a signal fails on a commit, where a log says so."""
    runs = await job_runs.read_job_runs(tx, settings, branch, signal, [sha])
    return next((run.failure for run in runs if run.word == "bad" and run.failure), None)


async def find_entry(tx: Transaction, repo: str, word: str) -> Entry | None:
    """Return the entry of a backend that a search is about, None for upstream's own CI; raises Refused."""
    wanted = word.casefold()
    if wanted in UPSTREAM_WORDS or wanted == repo.casefold():
        return None
    listed = await allowlists.read_in_force(tx)
    entry = _find(listed, wanted) if listed else None
    if entry is None:
        known = [listed_entry.label for listed_entry in listed.entries] if listed else []
        near = text.listing(nearest_names(word, [*known, "upstream"]))
        raise Refused(f"no backend is called {word[:100]}; the nearest are: {near}")
    if entry.level < LEAST_LEVEL:
        raise Refused(f"{entry.label} is at L1: nothing comes back from it, so it cannot be searched")
    if entry.bisect.mode == "off":
        raise Refused(f"searches are off for {entry.label}: its entry says `bisect: off`")
    return entry


async def start_search(tx: Transaction, settings: Settings, wanted: WantedSearch) -> StartedSearch:
    """Begin a search, or return the search of its signal under way; raises Refused."""
    entry = await find_entry(tx, wanted.repo, wanted.backend)
    branch = await find_branch(tx, settings, wanted)
    commits, _ = await branch_reads.newest_commits(tx, branch, before=None, limit=signals.LINES)
    backend = entry.repo if entry else ""
    seen = await signals.read_history(tx, settings, branch, backend, commits)
    place = SignalPlace(branch=branch, backend=backend, label=entry.label if entry else "upstream")
    signal = await find_signal(
        tx, settings, seen, place, wanted.what, signature=wanted.signature, of_range=bool(wanted.bad)
    )
    if known := await rows.find_open(tx, signal):
        return StartedSearch(row=known, is_new=False)
    ends = await find_ends(tx, settings, seen, branch, signal, good=wanted.good, bad=wanted.bad)
    if sum(row["state"] in {"running", "waiting"} for row in await _open(tx, branch)) >= OPEN_MOST:
        raise Refused(f"{OPEN_MOST} searches are under way in {wanted.repo}: cancel one, or wait")
    row = await _new_row(tx, settings, branch, signal, ends=ends, wanted=wanted)
    row["flaky_rate"] = seen.flaky_rate(signal["job"], since=tx.now - signals.FLAKY_WITHIN)
    if not await rows.add_search(tx, row):  # another request was a moment earlier
        known = await rows.find_open(tx, signal)
        if known is None:
            raise Refused("it was searched for a moment ago: try again")
        return StartedSearch(row=known, is_new=False)
    tx.enqueue(SEARCH_KIND, row["id"])
    return StartedSearch(row=row, is_new=True)


async def find_branch(tx: Transaction, settings: Settings, wanted: WantedSearch) -> Branch:
    """Return the branch that is searched; raises Refused."""
    if not settings.is_upstream(wanted.repo):
        raise Refused(f"{wanted.repo[:200]} is not an upstream repository")
    branch = await branch_history.find_branch_of(tx, wanted.repo, wanted.branch)
    if branch is None:
        raise Refused(f"nothing is known of {wanted.repo[:200]} yet")
    name = wanted.branch or branch.repository["default_branch"] or ""
    return branch_reads.Branch(repository=branch.repository, names=branch.names, name=name)


async def cancel_search(tx: Transaction, identifier: str, *, by: str) -> BisectRow:
    """Cancel a search: nothing more is sent, what runs is left to end; raises Refused."""
    row = await rows.get_search(tx, identifier, held=True)
    if row is None:
        raise Refused(f"there is no search {identifier[:40]}")
    if row["ended_at"] is not None:
        raise Refused(f"the search {identifier} is over: {row['why']}")
    await rows.end_search(tx, identifier, state="cancelled", why=f"cancelled by {by}")
    return row


def terms_of(entry: Entry | None) -> BisectTerms:
    """Return the limits of searches in a backend, or in upstream's own CI."""
    return entry.bisect if entry else BisectTerms()


def _only_failing(seen: History, place: SignalPlace) -> str:
    failing = seen.broken_jobs() or seen.failing_jobs()
    if not failing:
        raise Refused(f"nothing of {place.label} fails on {place.branch.name} now")
    if len(failing) > 1:
        raise Refused(f"several jobs of {place.label} fail: name one of {text.listing(failing)}")
    return failing[0]


def _named_jobs(jobs: Iterable[str], what: str) -> list[str]:
    """Return the jobs with a name, which may include their workflow's."""
    folded = what.casefold()
    whole = [job for job in jobs if job.casefold() == folded]
    return whole or [job for job in jobs if job.casefold().endswith(f" / {folded}")]


def _failing_commits(seen: History, job: str) -> list[str]:
    cells = zip(seen.grid.lines, seen.column(job), strict=True)
    failing = [line.commit["sha"] for line, cell in cells if cell is not None and cell.broken]
    return failing[:FAILING_READ]


async def _failing_tests(
    tx: Transaction, seen: History, place: SignalPlace, jobs: Sequence[str]
) -> list[str]:
    """Return tests that a backend lately reported as failed, as suggestions."""
    shas = sorted({sha for job in jobs for sha in _failing_commits(seen, job)})
    if not place.backend or not shas:
        return []
    reported = await job_runs.reported_jobs(tx, place.branch.names, place.backend, shas)
    failed = await job_runs.failed_tests(tx, [row["job_key"] for row in reported])
    names = [
        f"{test['classname']}.{test['name']}" if test.get("classname") else str(test.get("name") or "")
        for tests in failed.values()
        for test in tests
    ]
    return list(dict.fromkeys(name for name in names if name))[:NAME_MOST]


async def _named(tx: Transaction, seen: History, branch: Branch, written: str) -> str:
    sha = written.casefold()
    if not SHA.fullmatch(sha):
        raise Refused(f"{written[:64]} is not a commit: write at least 7 digits of its SHA")
    shas = {line.commit["sha"] for line in seen.grid.lines if line.commit["sha"].startswith(sha)}
    if len(shas) > 1:
        raise Refused(f"{written} is the beginning of several commits: write more of it")
    if shas:
        return shas.pop()
    row = await branch_rows.commit(tx, branch.repository["repository_id"], branch.name, sha)
    if row is None:
        raise UnknownCommit(sha, branch.name)
    if row["gone"]:
        raise Refused(f"{text.short(sha)} is no longer on {branch.name}")
    return row["sha"]


async def _known(
    tx: Transaction, settings: Settings, seen: History, branch: Branch, signal: Signal
) -> tuple[str | None, str | None]:
    """Return the last good and the first bad commit by what ran; None where there is none."""
    if not signal["test"] and not signal["signature"]:
        change = branch_history.failing_since(seen.column(signal["job"]))
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


def _by_runs(shas: Sequence[str], runs: Sequence[job_runs.SignalRun]) -> tuple[str | None, str | None]:
    """Return the ends of the newest streak of failures, given the commits newest first."""
    good = {run.sha for run in runs if run.word == "good"}
    failing = {run.sha for run in runs if run.word == "bad"} - good
    bad = None
    for sha in shas:
        if sha in good:
            return (sha if bad else None), bad
        if sha in failing:
            bad = sha
    return None, bad


def _find(listed: Allowlist, wanted: str) -> Entry | None:
    return next((entry for entry in listed.entries if wanted in {entry.key, entry.label.casefold()}), None)


async def _open(tx: Transaction, branch: Branch) -> list[BisectRow]:
    return await rows.read_searches_of(tx, branch.repository["repository_id"], limit=10 * OPEN_MOST)


async def _new_row(
    tx: Transaction, settings: Settings, branch: Branch, signal: Signal, *, ends: Ends, wanted: WantedSearch
) -> BisectRow:
    failure = await failure_on(tx, settings, branch, signal, ends.bad)
    known = job_runs.KnownFailure(
        signature=failure and failure["signature"], kind=failure and failure["failure_kind"]
    )
    return {
        "id": secrets.token_hex(5),
        "repository_id": signal["repository_id"],
        "upstream_repo": branch.repository["full_name"],
        "branch": signal["branch"],
        "backend": signal["backend"],
        "job": signal["job"],
        "test": signal["test"],
        "signature": signal["signature"],
        "good_sha": ends.good,
        "bad_sha": ends.bad,
        "state": "running",
        "why": "",
        "requested_by": wanted.by,
        "reason": wanted.reason[:REASON_MOST],
        "comment_on": wanted.comment_on,
        "flaky_rate": 0.0,
        "bad_signature": known.signature,
        "bad_kind": known.kind,
        "moved": 0,
        "used": 0,
        "waits_until": None,
        "culprit_sha": None,
        "parent_sha": None,
        "confidence": None,
        "suspects": None,
        "good_runs": 0,
        "bad_runs": 0,
        "pr_number": None,
        "author": None,
        "title": None,
        "files": None,
        "mended_sha": None,
        "created_at": tx.now,
        "updated_at": tx.now,
        "ended_at": None,
    }
