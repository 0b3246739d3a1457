"""Words of pull requests: kept as they are recorded, so that these are found by title, author and branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bot.oot.pages import pull_rows
from bot.word_index import rows as word_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.ingest.rows import PullRow
    from bot.word_index.tables import Title

KIND = "pull"


async def keep_words(tx: Transaction, changed: Changed) -> None:
    """Before a commit: keep the words of changed pull requests."""
    pulls = cast("Sequence[PullRow]", changed.get("pull_request", ()))
    if pulls:
        await word_index.put_titles(tx, [_title(pull) for pull in pulls if pull["number"]])


async def forget_words(context: Context) -> dict[str, int]:
    """Delete words of pull requests that are no longer kept."""
    kept = pull_rows.is_kept(KIND)
    async with context.store.transaction() as tx:
        return {"words of pull requests": await word_index.forget_titles(tx, KIND, kept=kept)}


def _title(pull: PullRow) -> Title:
    texts = (pull["title"], pull["user_login"], pull["head_ref"])
    text = " ".join(one for one in texts if one)
    return {
        "kind": KIND,
        "repository_id": pull["repository_id"],
        "ref": str(pull["number"]),
        "text": text,
    }
