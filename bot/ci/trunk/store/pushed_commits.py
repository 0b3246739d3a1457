"""The heads of pushes, written as lines of the grid in the transaction that records the push."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.trunk.store import commit_words, folded_commits
from bot.ci.trunk.store.branches import HEADS
from bot.ci.trunk.tables import branch_commit
from bot.core import escaping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.rows import PushRow

TITLE_MOST = 120  # characters
MERGE = "Merge pull request #"
COMMIT = branch_commit.c
_OF_COMMIT = ("at", "title", "author", "pr_number")
_OF_PUSH: Mapping[str, Any] = {"parent": "", "replaces": "", "folded": 0}


async def write_commits(tx: Transaction, pushes: Sequence[PushRow]) -> None:
    """Write the head of each push to a branch; a branch that was deleted has none.

    A head may be pushed more than once: of two pushes the greater text counts, so that their order does not. What
    GitHub's list said before gives way to a push.
    """
    rows: dict[tuple[int, str, str], dict[str, Any]] = {}
    for push in pushes:
        if (row := _commit(push)) is not None:
            place = (row["repository_id"], row["branch"], row["sha"])
            rows[place] = _greater(rows[place], row) if place in rows else row
    if not rows:
        return
    statement = tx.insert(branch_commit)
    new = statement.excluded
    update: dict[str, Any] = {
        name: sa.case((COMMIT.listed, new[name]), else_=COMMIT[name]) for name in _OF_COMMIT
    }
    update |= {
        name: sa.case(
            (COMMIT.listed | (new[name] > sa.func.coalesce(COMMIT[name], least)), new[name]),
            else_=COMMIT[name],
        )
        for name, least in _OF_PUSH.items()
    }
    keys = [column.name for column in branch_commit.primary_key.columns]
    ordered = [rows[place] for place in sorted(rows)]
    update["listed"] = sa.false()
    await tx.run(statement.on_conflict_do_update(index_elements=keys, set_=update), ordered)
    await commit_words.keep_words(tx, ordered)
    for push in pushes:
        await _fold(tx, push)


async def _fold(tx: Transaction, push: PushRow) -> None:
    """Fold the commits that came with a push under its head."""
    reference, came = push["ref"] or "", set(push["commits"] or ()) - {push["after"]}
    if came and reference.startswith(HEADS):
        await folded_commits.fold_lines(tx, push["repository_id"], reference.removeprefix(HEADS), came)


def _greater(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {
        name: max(one[name] or least, other[name] or least) or one[name] for name, least in _OF_PUSH.items()
    }
    return {**one, **chosen}


def _commit(push: PushRow) -> dict[str, Any] | None:
    """Return the row of a push's head, None where nothing was pushed to a branch."""
    reference, sha = push["ref"] or "", push["after"]
    if push["deleted"] or not sha or not reference.startswith(HEADS):
        return None
    title = shorten_title(push["head_commit_message"] or "")
    before = push["before"] if push["before"] and push["before"].strip("0") else None
    return {
        "repository_id": push["repository_id"],
        "branch": reference.removeprefix(HEADS),
        "sha": sha,
        "parent": None if push["forced"] else before,
        "replaces": before if push["forced"] else None,
        "at": push["head_commit_timestamp"] or push["received_at"],
        "title": title,
        "author": push["pusher_name"],
        "pr_number": pull_number(title),
        "folded": max(0, len(push["commits"] or []) - 1),
        "gone": False,
        "listed": False,
    }


def shorten_title(message: str) -> str:
    """Return the first line of a commit's message, cut."""
    return escaping.one_line(message.partition("\n")[0])[:TITLE_MOST]


def pull_number(title: str) -> int | None:
    """Return the number of the pull request that a commit came from, by the titles that GitHub gives them.

    A squashed one ends with it, as in "... (#123)"; a merge begins with "Merge pull request #123 from".
    """
    _, found, last = title.rpartition("(#")
    digits = last.removesuffix(")")
    if not (found and last.endswith(")")):
        digits = title.removeprefix(MERGE).partition(" from ")[0] if title.startswith(MERGE) else ""
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None
