"""Statements on our answers on issues, and on where the App may write some."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.disabled.tables import AnswerRow, ci_disabling_comment
from bot.db.rows import select
from bot.ingest.tables import records
from bot.oot.publish import intent_rows

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.publish.intent_rows import Intent

INSTALLATION, ANSWER = records["installation"].c, ci_disabling_comment.c


async def may_write(tx: Transaction, repo: str, app_id: int) -> bool:
    """Whether the account of a repository granted the App `issues: write`, which it does not ask for."""
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


async def digests(tx: Transaction, repository_id: int) -> dict[int, str]:
    """Return what our answers in a repository say, as hashes, by the issue's number."""
    query = sa.select(ANSWER.number, ANSWER.digest).where(ANSWER.repository_id == repository_id)
    return {row.number: row.digest for row in await tx.run(query)}


async def begin_answer(tx: Transaction, repository_id: int, number: int) -> Intent:
    """Record that an answer is about to be made; raises RetryLater while another process may be making it."""
    row = {"repository_id": repository_id, "number": number, "comment_id": None, "digest": ""}
    return await intent_rows.begin_intent(tx, ci_disabling_comment, row)


async def record_answer(
    tx: Transaction, repository_id: int, number: int, *, comment_id: int, digest: str
) -> None:
    """Record what was written."""
    same = (ANSWER.repository_id == repository_id, ANSWER.number == number)
    await tx.run(sa.update(ci_disabling_comment).where(*same).values(comment_id=comment_id, digest=digest))


async def lose_all(tx: Transaction) -> None:
    """Record that every call in progress will stay unanswered: for the start of a process that is the only one."""
    await intent_rows.lose_all_intents(tx, [ci_disabling_comment])


def text_digest(text: str) -> str:
    """Return the hash that answers are compared by."""
    return hashlib.sha256(text.encode()).hexdigest()
