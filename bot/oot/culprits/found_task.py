"""The task `bisect_found`: what follows a find (key: the id of the search): the commit's files, and the comment."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused
from bot.oot.allowlist import rows as allowlists
from bot.oot.culprits import comment_text, rows
from bot.oot.publish.create_once import creating
from bot.oot.results.private_names import read_private_names

if TYPE_CHECKING:
    from bot.context import Context
    from bot.github.client import Client
    from bot.oot.culprits.tables import BisectRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.culprits.found_task")

FILES_MOST = 50
FILE_MOST = 300  # characters


async def follow_find(context: Context, task: Task) -> None:
    """Read the culprit's files, then write the comment where the backend's entry asks for one."""
    async with context.store.read() as tx:
        search = await rows.get_search(tx, task.key)
        listed = await allowlists.in_force(tx)
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


async def _read_files(context: Context, search: BisectRow) -> list[str]:
    client = context.github.client(search["upstream_repo"], contents="read")
    try:
        found = await client.getitem(client.path(f"commits/{search['culprit_sha']}"))
    except GitHubRefused as error:
        log.info("the culprit's files are not known", search=search["id"], reason=str(error))
        return []
    names = [str(one.get("filename") or "")[:FILE_MOST] for one in found.get("files") or ()]
    return [name for name in names if name][:FILES_MOST]


async def _write_comment(context: Context, search: BisectRow, number: int) -> None:
    """Write the comment once; it is edited later, and not written again after a person deleted it."""
    body = comment_text.render_comment(search, context.settings.url)
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
            async with creating(
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
    """Return the id of our comment, looked for on all pages: an answer may have been lost."""
    marker = comment_text.marker(search["id"])
    url = client.path(f"issues/{number}/comments{{?per_page}}")
    async for one in client.getiter(url, {"per_page": "100"}):
        app_id = (one.get("performed_via_github_app") or {}).get("id")
        if app_id == context.github.app_id and str(one.get("body", "")).startswith(marker):
            return int(one["id"])
    return None
