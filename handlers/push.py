"""push: pushes to branches and tags; a row for each, nothing is overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gidgethub.routing import Router

from bot.core.json_fields import as_text
from bot.ingest import repositories
from bot.ingest.deliveries import record
from bot.ingest.tables import PUSH
from bot.oot.allowlist import versions
from bot.oot.publish import merge_queue
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

MOST_COMMITS = 2048  # GitHub lists no more of them
MOST_FILES = 300  # a list this long may be truncated

router = Router()


@router.register("push")
async def push(event: Delivery, tx: Transaction) -> None:
    """Record the push or deletion and dispatch it; reread the allowlist when the push may have changed the file."""
    pushed = record(tx, event, PUSH)
    tx.enqueue("relay", event.delivery_id)
    if after := as_text(event.data.get("after")):  # a queue may have waited to know this commit
        for number in await merge_queue.pulls_building_on(tx, event.repo, after):
            request_publish(tx, event.repo, number)
    source = await versions.read_source_on_github(tx)
    if source and _may_touch(source.path, event.data):
        known = await repositories.read_ids(tx, source.repo)  # it may have been renamed since
        if event.repo.casefold() == source.repo.casefold() or pushed["repository_id"] in known:
            tx.enqueue("allowlist", "")


def _may_touch(file: str, body: dict[str, Any]) -> bool:
    """Whether the file changed, or may have: reading it again costs little."""
    commits = body.get("commits")
    if not isinstance(commits, list) or not 0 < len(commits) < MOST_COMMITS or body.get("forced"):
        return True
    return any(_touches(file, commit) for commit in commits)


def _touches(file: str, commit: Any) -> bool:
    if not isinstance(commit, dict):
        return True
    paths = [str(path) for kind in ("added", "modified", "removed") for path in commit.get(kind) or ()]
    return not 0 < len(paths) < MOST_FILES or file.casefold() in {path.casefold() for path in paths}
