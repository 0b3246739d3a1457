"""Task disabled_answer: writes and edits the App's comment on an issue that disables tests or jobs."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.core import escaping, text
from bot.core.errors import GitHubRefused, GiveUp, StoreUnavailable
from bot.core.feature import Finding, ok
from bot.db.rows import select
from bot.evidence.disabled import rows
from bot.evidence.disabled.tables import AnswerRow, ci_disabling_comment
from bot.ingest.tables import records
from bot.oot.publish.rows import begin_intent, create_once, lose_all_intents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.disabled.tables import DisablingRow
    from bot.github.client import Client
    from bot.oot.publish.rows import Intent
    from bot.ops.doctor import Target
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.evidence.disabled.answers")
MARKER = "<!-- ootbot:disabled -->"
SHOWN = 50  # tests that are named
INSTALLATION, ANSWER = records["installation"].c, ci_disabling_comment.c
CHECK_NAME = "disabled tests"
PERMISSION = "issues: write"


async def request_answers(
    context: Context, tx: Transaction, repo: str, repository_id: int, issues: Sequence[DisablingRow]
) -> None:
    """Request answers on a repository's issues where ours is missing or outdated."""
    if not issues or not await may_write(tx, repo, context.app_for(repo).app_id):
        return
    written = await answer_digests(tx, repository_id)
    for issue in issues:
        if written.get(issue["number"]) != text_digest(_text(context.settings, repo, issue)):
            tx.enqueue("disabled_answer", f"{repository_id}/{issue['number']}")


async def write_answer(context: Context, task: Task) -> None:
    """Bring our answer on an issue up to date. Key: repository's id and number, by `/`."""
    identifier, _, digits = task.key.partition("/")
    if not (identifier.isdigit() and digits.isdigit()):
        raise GiveUp(f"{task.key!r} is no issue")
    repository_id, number = int(identifier), int(digits)
    async with context.store.read() as tx:
        repo = (await rows.listing_repositories(tx, context.settings)).get(repository_id)
        issue = await rows.find_issue(tx, repository_id, number)
        present = await find_answer(tx, repository_id, number)
        if repo is None or issue is None:
            return
        if not await may_write(tx, repo, context.app_for(repo).app_id):
            return
    text = _text(context.settings, repo, issue)
    if present and present["digest"] == text_digest(text):
        return
    try:
        comment_id = await _write(context, repo, issue, present and present["comment_id"], text)
    except GitHubRefused as error:
        log.warning("no answer may be written", repo=repo, issue=number, reason=str(error))
        return
    async with context.store.transaction() as tx:
        digest = text_digest(text)
        await record_answer(tx, repository_id, number, comment_id=comment_id, digest=digest)


def render_answer(issue: DisablingRow, page: str | None) -> str:
    """Render the answer on an issue; `page` is the address of its repository's list."""
    lines = [MARKER, _effect(issue), ""]
    if issue["listed"]:
        for name, platforms in issue["entries"][:SHOWN]:
            lines.append(f"- {escaping.code(name)} {_where(platforms)}")
        if len(issue["entries"]) > SHOWN:
            lines.append(f"- and {len(issue['entries']) - SHOWN} more")
    if issue["problems"]:
        lines += ["", "Not understood:" if issue["listed"] else "Because:"]
        lines += [f"- {escaping.text(problem)}" for problem in issue["problems"]]
    if issue["listed"]:
        lines += ["", "Close this issue to undo it. A pull request that says it closes this issue is exempt."]
    if address := escaping.url(page):
        lines += ["", f"[All of them]({address})"]
    return "\n".join(lines)


async def may_write(tx: Transaction, repo: str, app_id: int) -> bool:
    """Whether a repository's account granted the App the optional permission `issues: write`."""
    query = sa.select(INSTALLATION.permissions).where(
        sa.func.lower(INSTALLATION.account_login) == repo.partition("/")[0].lower(),
        INSTALLATION.app_id == app_id,
        INSTALLATION.deleted_at.is_(None),
        INSTALLATION.suspended_at.is_(None),
    )
    granted = (await tx.run(query.order_by(INSTALLATION.id.desc()).limit(1))).scalar()
    return isinstance(granted, dict) and granted.get("issues") == "write"


async def find_answer(tx: Transaction, repository_id: int, number: int) -> AnswerRow | None:
    """Return our answer on an issue."""
    query = select(AnswerRow, ci_disabling_comment)
    return await tx.fetch_first(query.where(ANSWER.repository_id == repository_id, ANSWER.number == number))


async def answer_digests(tx: Transaction, repository_id: int) -> dict[int, str]:
    """Return the digests of our answers in a repository, by issue number."""
    query = sa.select(ANSWER.number, ANSWER.digest).where(ANSWER.repository_id == repository_id)
    return {row.number: row.digest for row in await tx.run(query)}


async def begin_answer(tx: Transaction, repository_id: int, number: int) -> Intent:
    """Record that an answer is about to be created; raises RetryLater while another process may be creating it."""
    row = {"repository_id": repository_id, "number": number, "comment_id": None, "digest": ""}
    return await begin_intent(tx, ci_disabling_comment, row)


async def record_answer(
    tx: Transaction, repository_id: int, number: int, *, comment_id: int, digest: str
) -> None:
    """Record the answer that was written."""
    same = (ANSWER.repository_id == repository_id, ANSWER.number == number)
    await tx.run(sa.update(ci_disabling_comment).where(*same).values(comment_id=comment_id, digest=digest))


async def lose_all(tx: Transaction) -> None:
    """Mark every call in progress as lost, when a process starts that is the only one."""
    await lose_all_intents(tx, [ci_disabling_comment])


def text_digest(text: str) -> str:
    """Return the hash that answers are compared by."""
    return hashlib.sha256(text.encode()).hexdigest()


async def check_answers(target: Target) -> list[Finding]:
    """Report where issues get an answer; where they do not, the list's page says the same."""
    if not await target.has_database():
        return []  # another check says so
    apps = {app.role: app.github.app_id for app in target.apps}
    upstream_app = apps.get("one") or apps.get("upstream", 0)
    try:
        async with target.store.read() as tx:
            repos = sorted((await rows.listing_repositories(tx, target.settings)).values())
            silent = [
                repo
                for repo in repos
                if not await may_write(
                    tx,
                    repo,
                    upstream_app if target.settings.is_upstream(repo) else apps.get("relay", upstream_app),
                )
            ]
    except StoreUnavailable:
        return []  # another check says so
    if not repos:
        return [ok(CHECK_NAME, "no repository is known yet whose issues could disable any")]
    if not silent:
        return [ok(CHECK_NAME, "issues that disable tests and jobs are answered")]
    where = text.listing(silent)
    return [
        ok(
            CHECK_NAME,
            f"issues get no answer in {where}: {PERMISSION} is not granted; /owner/repo/disabled says the same",
        )
    ]


async def _write(context: Context, repo: str, issue: DisablingRow, known: int | None, text: str) -> int:
    """Edit our answer, or create it; return its id."""
    app = context.app_for(repo)
    client = app.low_priority(repo, issues="write")
    if known is not None and await _edit(client, known, text):
        return known
    begin = partial(begin_answer, repository_id=issue["repository_id"], number=issue["number"])
    async with create_once(context, begin) as creation:
        comment = None if creation.fresh else await _find(client, issue["number"], app.app_id)
        if comment is not None and await _edit(client, comment, text):
            return comment
        return await creation.create(partial(_create, client, issue["number"], text))


async def _create(client: Client, number: int, text: str) -> int:
    made = await client.post(client.path(f"issues/{number}/comments"), data={"body": text})
    return int(made["id"])


async def _edit(client: Client, comment_id: int, text: str) -> bool:
    """Edit a comment; return False if it was deleted."""
    try:
        await client.patch(client.path(f"issues/comments/{comment_id}"), data={"body": text})
    except GitHubRefused as error:
        if error.gone:
            return False
        raise
    return True


async def _find(client: Client, number: int, app_id: int) -> int | None:
    """Look for our answer on all pages; return its id."""
    url = client.path(f"issues/{number}/comments{{?per_page}}")
    async for comment in client.getiter(url, {"per_page": "100"}):
        author = (comment.get("performed_via_github_app") or {}).get("id")
        if author == app_id and str(comment.get("body", "")).startswith(MARKER):
            return int(comment["id"])
    return None


def _text(settings: Settings, repo: str, issue: DisablingRow) -> str:
    return render_answer(issue, f"{settings.url}/{repo}/disabled")


def _effect(issue: DisablingRow) -> str:
    if not issue["listed"]:
        return "**This issue disables nothing.**"
    if issue["unstable"]:
        return "**While this issue is open, this job may fail:**"
    what = "this job is" if issue["kind"] == "job" else _counted(len(issue["entries"]))
    return f"**While this issue is open, {what} skipped:**"


def _counted(tests: int) -> str:
    return "this test is" if tests == 1 else f"these {tests} tests are"


def _where(platforms: list[str]) -> str:
    return f"on {', '.join(map(escaping.code, platforms))}" if platforms else "everywhere"
