"""Starting and cancelling a search: what is asked for is found among what is known, or refused with the reason."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.trunk import branch_history, reading
from bot.core import text
from bot.oot.allowlist import rows as allowlists
from bot.oot.allowlist.entry import BisectTerms
from bot.oot.culprits import ends, history, job_runs, named_signals, rows
from bot.oot.culprits.refused import Refused
from bot.oot.culprits.signals import nearest_names

if TYPE_CHECKING:
    from bot.ci.trunk.reading import Branch
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.entry import Entry
    from bot.oot.culprits.ends import Ends
    from bot.oot.culprits.tables import BisectRow, Signal

KIND = "bisect"  # of the task
OURSELVES = "ootbot"  # who asks where the entry says auto
UPSTREAM_WORDS = frozenset({"upstream", "ci"})
OPEN_MOST = 20  # searches of one repository at once
REASON_MOST = 300  # characters
LEAST_LEVEL = 2


@dataclass(frozen=True, kw_only=True)
class Wanted:
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
class Started:
    """A search that was asked for."""

    row: BisectRow
    is_new: bool  # else it was under way


async def find_entry(tx: Transaction, repo: str, word: str) -> Entry | None:
    """Return the entry of a backend that a search is about, None for upstream's own CI; raises Refused."""
    wanted = word.casefold()
    if wanted in UPSTREAM_WORDS or wanted == repo.casefold():
        return None
    listed = await allowlists.in_force(tx)
    entry = _find(listed, wanted) if listed else None
    if entry is None:
        known = [one.label for one in listed.entries] if listed else []
        near = text.listing(nearest_names(word, [*known, "upstream"]))
        raise Refused(f"no backend is called {word[:100]}; the nearest are: {near}")
    if entry.level < LEAST_LEVEL:
        raise Refused(f"{entry.label} is at L1: nothing comes back from it, so it cannot be searched")
    if entry.bisect.mode == "off":
        raise Refused(f"searches are off for {entry.label}: its entry says `bisect: off`")
    return entry


def _find(listed: Allowlist, wanted: str) -> Entry | None:
    return next((one for one in listed.entries if wanted in {one.key, one.label.casefold()}), None)


async def start_search(tx: Transaction, settings: Settings, wanted: Wanted) -> Started:
    """Begin a search, or return the one of its signal that is under way; raises Refused."""
    entry = await find_entry(tx, wanted.repo, wanted.backend)
    branch = await find_branch(tx, settings, wanted)
    commits, _ = await reading.newest_commits(tx, branch, before=None, limit=history.LINES)
    backend = entry.repo if entry else ""
    seen = await history.read_history(tx, settings, branch, backend, commits)
    place = named_signals.Place(branch=branch, backend=backend, label=entry.label if entry else "upstream")
    signal = await named_signals.find_signal(
        tx, settings, seen, place, wanted.what, signature=wanted.signature, of_range=bool(wanted.bad)
    )
    if known := await rows.find_open(tx, signal):
        return Started(row=known, is_new=False)
    found = await ends.find_ends(tx, settings, seen, branch, signal, good=wanted.good, bad=wanted.bad)
    if sum(row["state"] in {"running", "waiting"} for row in await _open(tx, branch)) >= OPEN_MOST:
        raise Refused(f"{OPEN_MOST} searches are under way in {wanted.repo}: cancel one, or wait")
    row = await _new_row(tx, settings, branch, signal, found=found, wanted=wanted)
    row["flaky_rate"] = seen.flaky_rate(signal["job"], since=tx.now - history.FLAKY_WITHIN)
    if not await rows.add_search(tx, row):  # another request was a moment earlier
        known = await rows.find_open(tx, signal)
        if known is None:
            raise Refused("it was searched for a moment ago: try again")
        return Started(row=known, is_new=False)
    tx.enqueue(KIND, row["id"])
    return Started(row=row, is_new=True)


async def find_branch(tx: Transaction, settings: Settings, wanted: Wanted) -> Branch:
    """Return the branch that is searched; raises Refused."""
    if not settings.is_upstream(wanted.repo):
        raise Refused(f"{wanted.repo[:200]} is not an upstream repository")
    found = await branch_history.find_branch(tx, wanted.repo, wanted.branch)
    if found is None:
        raise Refused(f"nothing is known of {wanted.repo[:200]} yet")
    name = wanted.branch or found.repository["default_branch"] or ""
    return reading.Branch(repository=found.repository, names=found.names, name=name)


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


async def _open(tx: Transaction, branch: Branch) -> list[BisectRow]:
    return await rows.searches_of(tx, branch.repository["repository_id"], limit=10 * OPEN_MOST)


async def _new_row(
    tx: Transaction, settings: Settings, branch: Branch, signal: Signal, *, found: Ends, wanted: Wanted
) -> BisectRow:
    failure = await ends.failure_on(tx, settings, branch, signal, found.bad)
    known = job_runs.Known(
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
        "good_sha": found.good,
        "bad_sha": found.bad,
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
