"""comment: the one comment of a pull request says what is true (key: `owner/repo#number`).

Found by its stored id, else by its marker and our App as author: nobody else's comment is ever taken for ours.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from bot import metrics
from bot.domain import comment, pull_key
from bot.errors import GitHubRefused
from bot.store import pulls
from bot.tasks import subject
from bot.tasks.labels import state_of
from bot.tasks.making import making

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.view import Pull
    from bot.github import Client
    from bot.query import PullState
    from bot.settings import Settings
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.comment")

Row = dict[str, Any]
GONE = frozenset({404, 410})


@dataclass(frozen=True, kw_only=True)
class Text:
    """What the comment should say."""

    body: str
    live: tuple[str, ...]  # backends (case folded) whose on-calls it mentions

    @property
    def digest(self) -> str:
        """What identifies it."""
        return hashlib.sha256(self.body.encode()).hexdigest()


async def run(context: Context, task: Task) -> None:
    """Write the comment when it differs from what was written last."""
    repo, number = subject.pull(task)
    state = await state_of(context, repo, number)
    async with context.store.read() as tx:
        present = await pulls.comment(tx, repo, number)
        text = await _text(tx, state)
        anew = await _text(tx, state, anew=True)
    if text is None or anew is None or state.current is None:
        return
    if present and present["digest"] == text.digest:
        return
    client = context.github.sparing(repo, pull_requests="write")
    known = present["comment_id"] if present else None
    edited = known if known is not None and await _edit(client, known, text.body) else None
    made = None
    if edited is None:
        async with making(context, partial(pulls.intend_comment, repo=repo, number=number)) as one:
            edited = await _edit_found(context, client, number, text.body)
            if edited is None and _is_due(context.settings, state.current.view, present):
                made = await one.make(partial(_create, client, state, anew.body))
    written, said = edited or made, anew if made else text
    async with context.store.transaction() as tx:
        await pulls.wrote_comment(tx, repo, number, comment_id=written, digest=said.digest)
        head = state.current.view.head_sha
        await pulls.mentioned(tx, repo, number, head, said.live if written else (), anew=not edited)


async def follow(tx: Transaction, settings: Settings, state: PullState) -> None:
    """Ask for the comment when what it should say is not what it says."""
    if settings.comment == "off" or state.current is None:
        return
    present = await pulls.comment(tx, state.repo, state.number)
    there = present is not None and (present["comment_id"] is not None or not present["digest"])
    if not there and not _is_due(settings, state.current.view, present):
        return
    text = await _text(tx, state)
    if text is None or (present is not None and present["digest"] == text.digest):
        metrics.WRITES_SAVED.inc()
        return
    interval = settings.publish_interval
    tx.enqueue("comment", pull_key.of(state.repo, state.number), delay=interval, patience=6 * interval)


def _is_due(settings: Settings, pull: Pull, present: Row | None) -> bool:
    """Whether there is something that a comment is made for, not only edited: also after somebody deleted it."""
    since = present["written_at"] if present else 0
    answering = any(one.awaited and one.at > since for one in pull.answers)
    return settings.comment == "always" or comment.worth_saying(pull) or answering


async def _text(tx: Transaction, state: PullState, *, anew: bool = False) -> Text | None:
    """Return what the comment should say; `anew`: it takes the place of one that is gone.

    On-calls are mentioned from a backend's first failure on a head for as long as it holds. Once the text has been
    without them they are only named: nobody is called twice to one head.
    """
    if state.current is None:
        return None
    pull = state.current.view
    over = await pulls.mentions(tx, state.repo, state.number, pull.head_sha)
    calling = [
        one
        for one in comment.calling(pull)
        if not over.get(one.repo.casefold(), False) and not (anew and one.repo.casefold() in over)
    ]
    mention = {(one.repo, login) for one in calling for login in one.oncalls}
    live = tuple(one.repo.casefold() for one in calling)
    return Text(body=comment.render(pull, mention=mention), live=live)


async def _edit_found(context: Context, client: Client, number: int, body: str) -> int | None:
    """Edit the comment that is there and of which we do not know; returns its id, None when there is none."""
    found = await _find(context, client, number)
    return found if found is not None and await _edit(client, found, body) else None


async def _create(client: Client, state: PullState, body: str) -> int:
    created = await client.post(client.path(f"issues/{state.number}/comments"), data={"body": body})
    log.info("comment made", repo=state.repo, pull=state.number)
    return int(created["id"])


async def _edit(client: Client, comment_id: int, body: str) -> bool:
    """Edit a comment; returns False when somebody has deleted it."""
    try:
        await client.patch(client.path(f"issues/comments/{comment_id}"), data={"body": body})
    except GitHubRefused as error:
        if error.status in GONE:
            return False
        raise
    return True


async def _find(context: Context, client: Client, number: int) -> int | None:
    """Return our comment's id, looked for over all pages."""
    url = client.path(f"issues/{number}/comments{{?per_page}}")
    async for said in client.getiter(url, {"per_page": "100"}):
        app = said.get("performed_via_github_app") or {}
        if app.get("id") == context.github.app_id and str(said.get("body", "")).startswith(comment.MARKER):
            return int(said["id"])
    return None
