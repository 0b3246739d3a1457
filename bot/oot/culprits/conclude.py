"""How a search ends: the culprit with its evidence, or honestly without one; or it begins further back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk import reading
from bot.ci.trunk.store import folded_commits
from bot.core import text
from bot.ingest import record_reads
from bot.oot.culprits import history, job_runs, rows, verdict
from bot.oot.culprits.search import End
from bot.oot.culprits.verdict import Suspects

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.culprits.search import Decision
    from bot.oot.culprits.situation import Situation
    from bot.oot.culprits.tables import BisectRow

MOVES_MOST = 3  # times that a search begins further back
FOLDED_MOST = 100  # commits that came with another one
FOUND = "bisect_found"  # kind of the task that follows


async def conclude_found(tx: Transaction, found: Situation, decision: Decision) -> None:
    """Record the culprit: one commit, or a range where some cannot be told apart."""
    assert decision.good is not None
    assert decision.bad is not None
    search = found.search
    good, bad = found.commits[decision.good], found.commits[decision.bad]
    lines = found.commits[decision.good + 1 : decision.bad + 1]
    heads = [line["sha"] for line in lines if line["folded"]]
    folded = await folded_commits.commits_of_heads(
        tx, search["repository_id"], search["branch"], heads, most=FOLDED_MOST
    )
    shas: list[str] = []
    for line in lines:
        shas += [sha for sha, _ in reversed(folded.get(line["sha"], ()))] + [line["sha"]]
    several = len(lines) > 1 or any(line["folded"] for line in lines)
    number = bad["pr_number"]
    pull = await record_reads.get(tx, search["upstream_repo"], number) if number else None
    values = {
        "culprit_sha": bad["sha"],
        "parent_sha": good["sha"],
        "confidence": "range" if several else "commit",
        "suspects": shas,
        "good_runs": found.seen[decision.good].good,
        "bad_runs": found.seen[decision.bad].bad,
        "pr_number": number,
        "author": (pull and pull["user_login"]) or bad["author"],
        "title": (pull and pull["title"]) or bad["title"],
    }
    ended: BisectRow = {**search, **values}  # type: ignore[typeddict-item]
    if several:
        untestable = [line["sha"] for line in lines[:-1]]
        suspects = Suspects(
            shas=tuple(shas),
            untestable=tuple(untestable),
            why=_why_untestable(found, untestable),
            folded=sum(line["folded"] for line in lines),
        )
        why = verdict.range_sentence(ended, found.label, suspects)
    else:
        why = verdict.found_sentence(ended, found.label)
    await rows.end_search(tx, search["id"], state="found", why=why, **values)
    tx.enqueue(FOUND, search["id"])


def describe_end(found: Situation, decision: Decision) -> tuple[str, str]:
    """Return the state of a search that ends without a culprit, and why."""
    search = found.search
    bad, good = text.short(search["bad_sha"]), text.short(search["good_sha"])
    match decision.end:
        case End.FLAKY:
            return "not_found", f"flaky, not broken: it passed on {bad} when it was run again"
        case End.GOOD_IS_BAD:
            return "not_found", f"it fails on {good} as well, and on everything before it that was tried"
        case End.SILENT:
            count = sum(one.silent > 0 for one in found.seen)
            return "gave_up", f"{found.label} did not answer on {text.plural(count, 'commit')}"
        case _:
            last = [step for step in found.steps if step["sha"] == decision.unconfirmed and step["detail"]]
            why = f": {last[-1]['detail']}" if last else ""
            return "gave_up", f"what ran on {text.short(decision.unconfirmed)} could not be confirmed{why}"


async def look_before(tx: Transaction, settings: Settings, found: Situation) -> bool:
    """Have a search whose good end fails begin further back; returns False where that was done often enough."""
    search = found.search
    if search["moved"] >= MOVES_MOST:
        return False
    older, _ = await reading.newest_commits(tx, found.branch, before=search["good_sha"], limit=history.LINES)
    older = [row for row in older if not row["gone"]]
    if not older:
        return False
    shas = [row["sha"] for row in older]
    known = job_runs.Known(signature=search["bad_signature"], kind=search["bad_kind"])
    runs = await job_runs.read_job_runs(tx, settings, found.branch, found.signal, shas, known=known)
    failed = {run.sha for run in runs if run.word == "bad"}
    passed = {run.sha for run in runs if run.word == "good"} - failed
    good = next((sha for sha in shas if sha in passed), None)
    if good is None:  # as far back as the search is long
        good = shas[min(len(shas), len(found.commits)) - 1]
    await rows.change_search(
        tx,
        search["id"],
        good_sha=good,
        moved=search["moved"] + 1,
        why=f"{text.short(search['good_sha'])} is bad too: looking before it",
    )
    return True


def _why_untestable(found: Situation, shas: list[str]) -> str:
    whys = {run.why for run in found.runs if run.sha in shas and run.word == "unbuildable"}
    if whys == {job_runs.NO_BUILD}:
        return "cannot be built"
    return "cannot be tested"
