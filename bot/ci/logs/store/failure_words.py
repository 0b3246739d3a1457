"""Words of failures: kept with the signatures of public repositories, so that these are found by their titles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.logs.tables import PUBLIC, SignatureRow, ci_signature
from bot.db.rows import select
from bot.word_index import rows as word_index
from bot.word_index.tables import title

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.context import Context
    from bot.db.transaction import Transaction

KIND, NO_REPOSITORY = "failure", 0
SIGNATURE, TITLE = ci_signature.c, title.c


async def keep_words(tx: Transaction, titles: Mapping[str, str]) -> None:
    """Keep the words of failures' titles, by signature."""
    await word_index.put_titles(
        tx,
        [
            {"kind": KIND, "repository_id": NO_REPOSITORY, "ref": signature, "text": text}
            for signature, text in titles.items()
        ],
    )


async def forget_words(context: Context) -> int:
    """Delete words of failures that are no longer kept; returns how many."""
    kept = sa.exists().where(SIGNATURE.signature == TITLE.ref, SIGNATURE.family == PUBLIC)
    async with context.store.transaction() as tx:
        return await word_index.forget_titles(tx, KIND, kept=kept)


async def failures_by_words(tx: Transaction, text: str, *, limit: int) -> list[SignatureRow]:
    """Return failures in whose title each word of a text begins a word, those seen last first."""
    titles = await word_index.find_titles(tx, KIND, text, owners={NO_REPOSITORY}, limit=limit)
    these = SIGNATURE.signature.in_([row["ref"] for row in titles])
    return await _read(tx, these, limit) if titles else []


async def failures_by_signature(tx: Transaction, start: str, *, limit: int) -> list[SignatureRow]:
    """Return failures whose signature begins so."""
    return await _read(tx, sa.and_(SIGNATURE.signature >= start, SIGNATURE.signature < start + "g"), limit)


async def _read(tx: Transaction, these: sa.ColumnElement[bool], limit: int) -> list[SignatureRow]:
    query = select(SignatureRow, ci_signature).where(these, SIGNATURE.family == PUBLIC)
    return await tx.fetch(query.order_by(SIGNATURE.last_at.desc(), SIGNATURE.signature).limit(limit))
