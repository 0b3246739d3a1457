"""The task `comment`: writes the one comment of a pull request (key: `owner/repo#number`)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from bot.core import metrics
from bot.core.errors import GitHubRefused, NotInstalled
from bot.oot.publish import comment_text, pull_reads, rows
from bot.oot.publish.rows import create_once
from bot.oot.results import task_keys

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.oot.publish.tables import CommentRow
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Pull
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.publish.comment")

ASK_AGAIN = 3_600_000  # milliseconds after which a comment is tried where the App might write none


@dataclass(frozen=True, kw_only=True)
class Comment:
    """The comment as it should be."""

    body: str
    mentions: tuple[str, ...]  # backends (case folded) whose on-calls it mentions

    @property
    def digest(self) -> str:
        """The hash by which its body is compared."""
        return hashlib.sha256(self.body.encode()).hexdigest()


async def write_comment(context: Context, task: Task) -> None:
    """Write the comment if it differs from what was written last."""
    repo, number = task_keys.parse_pull(task)
    state = await pull_reads.read_current(context, repo, number)
    async with context.store.read() as tx:
        present = await rows.get_comment(tx, repo, number)
        edited = await _desired(tx, state)
        created = await _desired(tx, state, replacing=True)
    if edited is None or created is None:
        return
    if present and present["digest"] == edited.digest:
        return
    try:
        await _write(context, state, present, edited, created)
    except GitHubRefused as error:
        if not _lacks_permission(error):
            raise
        reason = (
            f"the App lacks `pull_requests: write` there (GitHub answered {error.status}: {error.message})"
        )
        async with context.store.transaction() as tx:
            await rows.refuse_comments(tx, repo, reason)
        log.warning("no comment may be written", repo=repo, pull=number, reason=reason)


async def request_comment(tx: Transaction, settings: Settings, state: PullState) -> None:
    """Enqueue the comment's task if its text should change."""
    if settings.comment == "off" or state.current is None:
        return
    refusal = await rows.comment_refusal(tx, state.repo)
    if refusal is not None and tx.now - refusal["refused_at"] < ASK_AGAIN:
        return
    present = await rows.get_comment(tx, state.repo, state.number)
    exists = present is not None and (present["comment_id"] is not None or not present["digest"])
    if not exists and not _is_due(settings, state.current.view, present):
        return
    desired = await _desired(tx, state)
    if desired is None or (present is not None and present["digest"] == desired.digest):
        metrics.WRITES_SAVED.inc()
        return
    interval = settings.publish_interval
    tx.enqueue("comment", task_keys.pull_key(state.repo, state.number), delay=interval, max_wait=6 * interval)


async def _write(
    context: Context, state: PullState, present: CommentRow | None, edited: Comment, created: Comment
) -> None:
    """Edit our comment, or create it; raises GitHubRefused."""
    if state.current is None:
        return
    repo, number = state.repo, state.number
    opened_at = state.record["created_at"] if state.record else None
    client = context.github.low_priority(repo, since=opened_at, pull_requests="write")
    known = present["comment_id"] if present else None
    edited_id = known if known is not None and await _edit(client, known, edited.body) else None
    created_id = None
    if edited_id is None:
        async with create_once(context, partial(rows.intend_comment, repo=repo, number=number)) as creation:
            edited_id = await _edit_found(context, client, number, edited.body)
            if edited_id is None and _is_due(context.settings, state.current.view, present):
                created_id = await creation.create(partial(_create, client, state, created.body))
    written, comment_id = created if created_id else edited, edited_id or created_id
    async with context.store.transaction() as tx:
        await rows.allow_comments(tx, repo=repo)
        await rows.record_comment(tx, repo, number, comment_id=comment_id, digest=written.digest)
        head, mentions = state.current.view.head_sha, written.mentions if comment_id else ()
        await rows.record_mentions(tx, repo, number, head, mentions, new_comment=not edited_id)


def _is_due(settings: Settings, pull: Pull, present: CommentRow | None) -> bool:
    """Whether what there is to say justifies creating a comment, not just editing one; also after it was deleted."""
    since = present["written_at"] if present else 0
    answering = any(answer.awaited and answer.at > since for answer in pull.answers)
    return settings.comment == "always" or comment_text.has_failures(pull) or answering


async def _desired(tx: Transaction, state: PullState, *, replacing: bool = False) -> Comment | None:
    """Return the comment as it should be; `replacing`: created in place of a deleted one.

    On-calls are mentioned from a backend's first failure on a head for as long as it holds. After that they are only
    named: no person is notified twice about one head.
    """
    if state.current is None:
        return None
    pull = state.current.view
    over = await rows.read_mentions(tx, state.repo, state.number, pull.head_sha)
    calling = [
        backend
        for backend in comment_text.needing_oncalls(pull)
        if not over.get(backend.repo.casefold(), False)
        and not (replacing and backend.repo.casefold() in over)
    ]
    logins = {(backend.repo, login) for backend in calling for login in backend.oncalls}
    keys = tuple(backend.repo.casefold() for backend in calling)
    return Comment(body=comment_text.render_comment(pull, mention=logins), mentions=keys)


def _lacks_permission(error: GitHubRefused) -> bool:
    """Whether the App was never allowed to write comments, which affects nothing else it does."""
    of_token = (
        isinstance(error, NotInstalled) and error.status == 422 and "permission" in error.message.lower()
    )
    return of_token or (error.status == 403 and "not accessible by integration" in error.message.lower())


async def _edit_found(context: Context, client: Client, number: int, body: str) -> int | None:
    """Find and edit a comment of ours whose id was lost; returns its id, None if there is none."""
    comment_id = await _find(context, client, number)
    return comment_id if comment_id is not None and await _edit(client, comment_id, body) else None


async def _create(client: Client, state: PullState, body: str) -> int:
    created = await client.post(client.path(f"issues/{state.number}/comments"), data={"body": body})
    log.info("comment made", repo=state.repo, pull=state.number)
    return int(created["id"])


async def _edit(client: Client, comment_id: int, body: str) -> bool:
    """Edit a comment; returns False when it was deleted."""
    try:
        await client.patch(client.path(f"issues/comments/{comment_id}"), data={"body": body})
    except GitHubRefused as error:
        if error.gone:
            return False
        raise
    return True


async def _find(context: Context, client: Client, number: int) -> int | None:
    """Search all pages for our comment; returns its id."""
    url = client.path(f"issues/{number}/comments{{?per_page}}")
    async for comment in client.getiter(url, {"per_page": "100"}):
        app_id = (comment.get("performed_via_github_app") or {}).get("id")
        if app_id == context.github.app_id and str(comment.get("body", "")).startswith(comment_text.MARKER):
            return int(comment["id"])
    return None
