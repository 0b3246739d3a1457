"""Reads from GitHub before publishing: labels when our record is in doubt, the merge base, changed files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused, RetryLater
from bot.core.json_fields import Kind, read_member
from bot.ingest import record_reads
from bot.oot.dispatch import changed_files
from bot.oot.dispatch.changed_files import Head
from bot.oot.publish import job_lines, rows
from bot.oot.verdict import pull_state
from bot.oot.verdict import rows as verdict_rows
from bot.oot.verdict.head import in_doubt
from bot.oot.verdict.private_view import without_private_names
from bot.oot.verdict.rows import MergeBase

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Pull

log = structlog.get_logger("bot.oot.publish.github_reads")


async def read_current(context: Context, repo: str, number: int) -> PullState:
    """Read and judge a pull request's newest head, and the others where nothing was reported on that yet.

    Its comment shows the verdict on an older one then.
    """
    state = await read_state(context, repo, number, newest=1)
    if len(state.heads) == 1 or state.current is None or state.current.view.reported:
        return state
    return await read_state(context, repo, number)


async def read_state(
    context: Context, repo: str, number: int, *, newest: int = pull_state.MOST_HEADS
) -> PullState:
    """Read and judge the newest heads of a pull request, and older ones that have an unfinished check run.

    With `newest` less than usual those only. GitHub is asked for labels when our record may not be the latest.
    """
    async with context.store.read() as tx:
        record = await record_reads.get(tx, repo, number)
        doubtful = in_doubt(record, await record_reads.label_events(tx, repo, number))
        if not (doubtful and context.settings.is_upstream(repo)):
            return await _state(tx, context, repo, number, newest=newest)
    labels = await _labels(context, repo, number, since=record["created_at"] if record else None)
    async with context.store.read() as tx:
        return await _state(tx, context, repo, number, newest=newest, labels=labels)


async def _state(
    tx: Transaction,
    context: Context,
    repo: str,
    number: int,
    *,
    newest: int,
    labels: frozenset[str] | None = None,
) -> PullState:
    all_maintained = newest >= pull_state.MOST_HEADS
    state = await pull_state.read_pull(
        tx,
        context.settings,
        repo,
        number,
        labels=labels,
        newest=newest,
        also=await rows.unfinished_heads(tx, repo, number) if all_maintained else (),
        compared=newest,
    )
    full = await job_lines.add_job_lines(tx, context, state)
    public = await without_private_names(tx, context.settings, full)
    return await job_lines.add_failures(tx, context, public)


async def _labels(context: Context, repo: str, number: int, *, since: int | None) -> frozenset[str] | None:
    """Return the labels GitHub shows now; None if it refuses: then our record stands."""
    client = context.github.caching(repo, since=since, pull_requests="read")
    url = client.path(f"issues/{number}/labels{{?per_page}}")
    try:
        return frozenset([one["name"] async for one in client.getiter(url, {"per_page": "100"})])
    except GitHubRefused as error:
        log.warning("labels cannot be read", repo=repo, pull=number, reason=str(error))
        return None


async def read_merge_base(context: Context, state: PullState) -> bool:
    """Ask once for the newest head's merge base when it has failures to compare; returns whether that is news."""
    head = state.current
    if head is None or not any(backend.failing for backend in head.view.backends):
        return False
    sha, base_ref = head.view.head_sha, state.base_ref or ""
    dispatched = next((facts.dispatch for facts in head.facts.values() if facts.dispatch["base_sha"]), None)
    async with context.store.read() as tx:
        known = sha in await verdict_rows.merge_bases(tx, state.repo, [sha], base_ref=base_ref)
    if known or dispatched is None:
        return False
    base = dispatched["base_sha"]
    try:
        merge_base = await _merge_base(context, state, base, sha, since=dispatched["created_at"])
    except RetryLater as error:
        log.info("the merge base is asked for later", repo=state.repo, pull=state.number, reason=str(error))
        return False
    async with context.store.transaction() as tx:
        await verdict_rows.store_merge_base(tx, state.repo, sha, merge_base, base_ref=base_ref)
    return merge_base.sha is not None


async def _merge_base(
    context: Context, state: PullState, base: str | None, head: str, *, since: int
) -> MergeBase:
    client = context.github.client(state.repo, since=since, contents="read")
    url = client.path("compare/{base}...{head}{?page,per_page}")  # the first page alone lists files
    try:
        found = await client.getitem(url, {"base": base, "head": head, "page": "2", "per_page": "1"})
    except GitHubRefused as error:
        log.warning("no merge base", repo=state.repo, pull=state.number, reason=str(error))
        return MergeBase(None)
    return MergeBase(
        str(found["merge_base_commit"]["sha"]),
        read_member(found, ("merge_base_commit", "commit", "committer", "date"), Kind.TIME),
    )


async def read_changed_files(context: Context, state: PullState) -> frozenset[str]:
    """Return the files the newest head changes; none if no failed test has a line, or GitHub refuses.

    Only failed tests in these files can be annotated. GitHub is asked once per head.
    """
    head = state.current
    if head is None or not _any_line(head.view):
        return frozenset()
    opened_at = state.record["created_at"] if state.record else None
    listed = Head(state.repo, state.number, head.view.head_sha, state.base_ref or "")
    try:
        paths, _ = await changed_files.read_changed_files(context, listed, since=opened_at, certain=False)
    except (GitHubRefused, RetryLater) as error:
        log.warning("changed files cannot be read", repo=state.repo, pull=state.number, reason=str(error))
        return frozenset()
    return frozenset(paths)


def _any_line(pull: Pull) -> bool:
    reported = (test for backend in pull.backends for job in backend.failing for test in job.failed_tests)
    return any(test.file for test in reported) or bool(pull.tests and pull.tests.marks)
