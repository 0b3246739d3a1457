"""How a search ends, in words for people, and what follows a find: the commit's files, and the comment."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from bot.core import escaping, text
from bot.core.errors import GitHubRefused
from bot.core.escaping import one_line, shorten
from bot.ingest import record_store
from bot.jobs import branch_commits, branch_reads
from bot.oot.allowlist import versions as allowlists
from bot.oot.culprits import job_runs, rows, signals
from bot.oot.culprits.search import End
from bot.oot.publish.rows import create_once
from bot.oot.results.visibility import read_private_names

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.oot.culprits.advance import Situation
    from bot.oot.culprits.search import Decision
    from bot.oot.culprits.tables import BisectRow
    from bot.queue.tasks import Task

NAME_MOST = 120  # characters of a job or test in a sentence
SHAS_MOST = 4  # commits named in a sentence
MOVES_MOST = 3  # times that a search begins further back
FOLDED_MOST = 100  # commits that came with another one
FOUND = "bisect_found"  # kind of the task that follows
log = structlog.get_logger("bot.oot.culprits.finish")

FILES_MOST = 50
FILE_MOST = 300  # characters


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """The commits one of which is the culprit, and why there are several."""

    shas: tuple[str, ...]  # oldest first
    untestable: tuple[str, ...]  # among them
    why: str = ""  # these say nothing
    folded: int = 0  # among them, came with another one


def what_broke(search: BisectRow, label: str) -> str:
    """Describe the signal: whose it is, and which job or test."""
    name = search["test"] or search["job"]
    failure = f" (failure {search['signature'][:12]})" if search["signature"] else ""
    return f"{label}: {shorten(one_line(name), NAME_MOST)}{failure}"


def found_sentence(search: BisectRow, label: str) -> str:
    """Return the sentence that names the culprit, with its evidence."""
    sha, parent = search["culprit_sha"] or "", search["parent_sha"] or ""
    pull = f"#{search['pr_number']}" if search["pr_number"] else ""
    author = one_line(search["author"] or "")
    inside = ", ".join(part for part in (text.short(sha) if pull else "", author) if part)
    named = (pull or text.short(sha)) + (f" ({inside})" if inside else "")
    return (
        f"{what_broke(search, label)} is broken by {named}: "
        f"passed on its parent {text.short(parent)} in {text.plural(search['good_runs'], 'run')}, "
        f"failed here in {search['bad_runs']}."
    )


def range_sentence(search: BisectRow, label: str, suspects: Suspects) -> str:
    """Return the sentence that names several commits, one of which is the culprit."""
    shas = [text.short(sha) for sha in suspects.shas]
    some = (
        " or ".join(shas)
        if len(shas) <= SHAS_MOST
        else f"one of {len(shas)} commits, {shas[0]} to {shas[-1]}"
    )
    reasons = []
    if suspects.untestable:
        names = text.listing([text.short(sha) for sha in suspects.untestable], limit=SHAS_MOST)
        reasons.append(f"{names} {suspects.why or 'cannot be built'}")
    if suspects.folded:
        reasons.append(
            f"{text.plural(suspects.folded, 'commit')} came with another one and cannot be told apart"
        )
    why = "; ".join(reasons)
    return (
        f"{what_broke(search, label)} is broken by {some}{f': {why}' if why else ''} "
        f"(passed on {text.short(search['parent_sha'] or '')} in {text.plural(search['good_runs'], 'run')}, "
        f"failed on {text.short(search['culprit_sha'] or '')} in {search['bad_runs']})."
    )


def describe_between(good: str, bad: str, count: int) -> str:
    """Say where the culprit lies after a search that ended early."""
    if count <= 1:
        return f"it is between {text.short(good)} and {text.short(bad)}"
    return f"it is one of the {count} commits after {text.short(good)}, up to {text.short(bad)}"


def describe_remaining(runs: int, rounds: int, median: float | None) -> str:
    """Say how many runs are left at most, and how long they take by the median of one.

    >>> describe_remaining(3, 2, 3600.0), describe_remaining(1, 1, None)
    ('at most 3 more runs, about 2 h by the median of one', 'at most 1 more run')
    """
    words = f"at most {runs} more {'run' if runs == 1 else 'runs'}"
    return (
        words if median is None else f"{words}, about {text.duration(rounds * median)} by the median of one"
    )


async def finish_found(tx: Transaction, situation: Situation, decision: Decision) -> None:
    """Record the culprit: one commit, or a range where commits cannot be told apart."""
    assert decision.good is not None
    assert decision.bad is not None
    search = situation.search
    good, bad = situation.commits[decision.good], situation.commits[decision.bad]
    lines = situation.commits[decision.good + 1 : decision.bad + 1]
    heads = [line["sha"] for line in lines if line["folded"]]
    folded = await branch_commits.commits_of_heads(
        tx, search["repository_id"], search["branch"], heads, most=FOLDED_MOST
    )
    shas: list[str] = []
    for line in lines:
        shas += [sha for sha, _ in reversed(folded.get(line["sha"], ()))] + [line["sha"]]
    several = len(lines) > 1 or any(line["folded"] for line in lines)
    number = bad["pr_number"]
    pull = await record_store.read_pull(tx, search["upstream_repo"], number) if number else None
    values = {
        "culprit_sha": bad["sha"],
        "parent_sha": good["sha"],
        "confidence": "range" if several else "commit",
        "suspects": shas,
        "good_runs": situation.seen[decision.good].good,
        "bad_runs": situation.seen[decision.bad].bad,
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
            why=_why_untestable(situation, untestable),
            folded=sum(line["folded"] for line in lines),
        )
        why = range_sentence(ended, situation.label, suspects)
    else:
        why = found_sentence(ended, situation.label)
    await rows.end_search(tx, search["id"], state="found", why=why, **values)
    tx.enqueue(FOUND, search["id"])


def describe_end(situation: Situation, decision: Decision) -> tuple[str, str]:
    """Return the state of a search that ends without a culprit, and why."""
    search = situation.search
    bad, good = text.short(search["bad_sha"]), text.short(search["good_sha"])
    match decision.end:
        case End.FLAKY:
            return "not_found", f"flaky, not broken: it passed on {bad} when it was run again"
        case End.GOOD_IS_BAD:
            return "not_found", f"it fails on {good} as well, and on everything before it that was tried"
        case End.SILENT:
            count = sum(commit.silent > 0 for commit in situation.seen)
            return "gave_up", f"{situation.label} did not answer on {text.plural(count, 'commit')}"
        case _:
            last = [
                step for step in situation.steps if step["sha"] == decision.unconfirmed and step["detail"]
            ]
            why = f": {last[-1]['detail']}" if last else ""
            return "gave_up", f"what ran on {text.short(decision.unconfirmed)} could not be confirmed{why}"


async def look_before(tx: Transaction, settings: Settings, situation: Situation) -> bool:
    """Restart a search whose good end fails further back; returns False if that was done often enough."""
    search = situation.search
    if search["moved"] >= MOVES_MOST:
        return False
    older, _ = await branch_reads.newest_commits(
        tx, situation.branch, before=search["good_sha"], limit=signals.LINES
    )
    older = [row for row in older if not row["gone"]]
    if not older:
        return False
    shas = [row["sha"] for row in older]
    known = job_runs.KnownFailure(signature=search["bad_signature"], kind=search["bad_kind"])
    runs = await job_runs.read_job_runs(tx, settings, situation.branch, situation.signal, shas, known=known)
    failed = {run.sha for run in runs if run.word == "bad"}
    passed = {run.sha for run in runs if run.word == "good"} - failed
    good = next((sha for sha in shas if sha in passed), None)
    if good is None:  # as far back as the search is long
        good = shas[min(len(shas), len(situation.commits)) - 1]
    await rows.change_search(
        tx,
        search["id"],
        good_sha=good,
        moved=search["moved"] + 1,
        why=f"{text.short(search['good_sha'])} is bad too: looking before it",
    )
    return True


def comment_marker(identifier: str) -> str:
    """Return the marker that the comment begins with."""
    return f"<!-- ootbot:culprit {identifier} -->"


def render_comment(search: BisectRow, url: str) -> str:
    """Render the comment: the sentence, what a reader can do, and where the evidence is."""
    page = f"{url}/{search['upstream_repo']}/bisects/{search['id']}"
    job = escaping.code(search["job"])
    test = f", test {escaping.code(search['test'])}" if search["test"] else ""
    return (
        f"{comment_marker(search['id'])}\n"
        f"{escaping.text(search['why'])}\n\n"
        f"Job {job}{test}. This was found by running it on commits of {escaping.code(search['branch'])}: "
        f"{escaping.link('the runs and their results', page)}.\n"
    )


async def follow_find(context: Context, task: Task) -> None:
    """Read the culprit's files, then write the comment where the backend's entry asks for one."""
    async with context.store.read() as tx:
        search = await rows.get_search(tx, task.key)
        listed = await allowlists.read_in_force(tx)
        backends = {search["backend"]} if search and search["backend"] else set()
        private = await read_private_names(tx, context.settings, backends)
    if search is None or search["state"] != "found" or not search["culprit_sha"]:
        return
    if search["files"] is None:
        search = {**search, "files": await _read_files(context, search)}
        async with context.store.transaction() as tx:
            await rows.change_search(tx, search["id"], files=search["files"])
    entry = listed.find(search["backend"]) if listed and search["backend"] else None
    if entry is None or not entry.bisect.comment or private.hides(entry.repo):
        return
    if search["confidence"] == "commit" and search["pr_number"]:
        await _write_comment(context, search, search["pr_number"])


def _why_untestable(situation: Situation, shas: list[str]) -> str:
    whys = {run.why for run in situation.runs if run.sha in shas and run.word == "unbuildable"}
    if whys == {job_runs.NO_BUILD}:
        return "cannot be built"
    return "cannot be tested"


async def _read_files(context: Context, search: BisectRow) -> list[str]:
    client = context.github.client(search["upstream_repo"], contents="read")
    try:
        commit = await client.getitem(client.path(f"commits/{search['culprit_sha']}"))
    except GitHubRefused as error:
        log.info("the culprit's files are not known", search=search["id"], reason=str(error))
        return []
    names = [str(file.get("filename") or "")[:FILE_MOST] for file in commit.get("files") or ()]
    return [name for name in names if name][:FILES_MOST]


async def _write_comment(context: Context, search: BisectRow, number: int) -> None:
    """Write the comment once; later it is edited, and not written again after a person deleted it."""
    body = render_comment(search, context.settings.url)
    digest = hashlib.sha256(body.encode()).hexdigest()
    async with context.store.read() as tx:
        present = await rows.get_comment(tx, search["id"])
    if present and (present["digest"] == digest):
        return
    client = context.github.low_priority(search["upstream_repo"], pull_requests="write")
    known = present["comment_id"] if present else None
    try:
        if known is not None:
            await _edit(client, known, body)
        else:
            async with create_once(
                context, partial(rows.intend_comment, search=search, number=number)
            ) as creation:
                known = None if creation.fresh else await _find(context, client, search, number)
                if known is None:
                    known = await creation.create(partial(_create, client, number, body))
                else:
                    await _edit(client, known, body)
    except GitHubRefused as error:
        log.warning("no comment on the culprit", search=search["id"], pull=number, reason=str(error))
        return
    async with context.store.transaction() as tx:
        await rows.record_comment(tx, search["id"], comment_id=known, digest=digest)


async def _create(client: Client, number: int, body: str) -> int:
    created = await client.post(client.path(f"issues/{number}/comments"), data={"body": body})
    return int(created["id"])


async def _edit(client: Client, comment_id: int, body: str) -> None:
    try:
        await client.patch(client.path(f"issues/comments/{comment_id}"), data={"body": body})
    except GitHubRefused as error:
        if not error.gone:
            raise


async def _find(context: Context, client: Client, search: BisectRow, number: int) -> int | None:
    """Search all pages for our comment, as an answer may have been lost; returns its id."""
    marker = comment_marker(search["id"])
    url = client.path(f"issues/{number}/comments{{?per_page}}")
    async for comment in client.getiter(url, {"per_page": "100"}):
        app_id = (comment.get("performed_via_github_app") or {}).get("id")
        if app_id == context.github.app_id and str(comment.get("body", "")).startswith(marker):
            return int(comment["id"])
    return None
