"""push: commits that reached a branch or tag; a row each, nothing overwrites anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import PUSH
from bot.store import allowlists, names

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

MOST_COMMITS = 2048  # GitHub lists no more of them
MOST_FILES = 300  # a list this long may have been cut

router = Router()


@router.register("push")
async def push(event: Delivery, tx: Transaction) -> None:
    """Keep the push and relay it; read the allowlist again when this may have changed the file."""
    kept = record(tx, event, PUSH)
    if not kept["deleted"]:
        tx.enqueue("relay", event.delivery_id)
    source = await allowlists.source_on_github(tx)
    if source and _may_touch(source.path, event.data):
        known = await names.ids(tx, source.repo)  # it may have been renamed since
        if event.repo.casefold() == source.repo.casefold() or kept["repository_id"] in known:
            tx.enqueue("allowlist", "")


def _may_touch(file: str, body: dict[str, Any]) -> bool:
    """Whether the file was changed, or what was changed cannot be told: reading it again costs little."""
    commits = body.get("commits")
    if not isinstance(commits, list) or not 0 < len(commits) < MOST_COMMITS or body.get("forced"):
        return True
    return any(_touches(file, commit) for commit in commits)


def _touches(file: str, commit: Any) -> bool:
    if not isinstance(commit, dict):
        return True
    paths = [str(path) for kind in ("added", "modified", "removed") for path in commit.get(kind) or ()]
    return not 0 < len(paths) < MOST_FILES or file.casefold() in {path.casefold() for path in paths}
