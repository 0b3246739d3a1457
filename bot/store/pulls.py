"""What do we know of a pull request, and what did we write on it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store import intents
from bot.store.pull_tables import (
    oot_changed_files,
    oot_check,
    oot_comment,
    oot_mention,
    oot_merge_base,
)
from bot.store.record_tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.store.intents import Intent
    from bot.store.transaction import Transaction

Row = dict[str, Any]
MOST_HEADS = 1_000  # of one pull request


async def get(tx: Transaction, repo: str, number: int) -> Row | None:
    """Return the pull request's record."""
    table = records["pull_request"]
    query = sa.select(table).where(sa.func.lower(table.c.repo) == repo.lower(), table.c.number == number)
    return await tx.row(query.order_by(table.c.received_at.desc()))


async def all_open(tx: Transaction) -> list[tuple[str, int]]:
    """Return the open pull requests we know of, in any repository, the newest first."""
    table = records["pull_request"]
    query = sa.select(table.c.repo, table.c.number).where(table.c.state == "open")
    return [(row["repo"], row["number"]) for row in await tx.rows(query.order_by(table.c.number.desc()))]


async def heads(tx: Transaction, pull: Row) -> dict[str, int]:
    """Return when each head of a pull request was last said to be one, the newest first (epoch milliseconds).

    `pull` is its record: the repository's id tells what is its own, whatever the repository was called then.
    """
    head = records["pull_head"].c
    query = sa.select(head.head_sha, head.updated_at).where(
        head.repository_id == pull["repository_id"], head.number == pull["number"]
    )
    rows = await tx.rows(query.order_by(head.updated_at.desc(), head.received_at.desc()).limit(MOST_HEADS))
    return {row["head_sha"]: row["updated_at"] or 0 for row in rows}


async def label_events(tx: Transaction, repo: str, number: int) -> list[Row]:
    """Return the newest label events of a pull request; GitHub's times have seconds, so several may share one."""
    table = records["pull_label_event"]
    query = sa.select(
        table.c.action, table.c.label_name, table.c.pull_request_updated_at.label("updated_at")
    ).where(sa.func.lower(table.c.repo) == repo.lower(), table.c.pull_request_number == number)
    return await tx.rows(query.order_by(table.c.pull_request_updated_at.desc()).limit(10))


async def deciders(tx: Transaction, repo: str, heads: Collection[str]) -> dict[str, list[int]]:
    """Return by commit which open pull requests with that head decide its gate: one commit has one.

    The first is the one that came to it first; its number says nothing, as anybody may push another's commit to an old
    pull request of theirs. The others are of the same author, and may be meant for other base branches.
    """
    pull, head = records["pull_request"].c, records["pull_head"].c
    same = (
        head.repository_id == pull.repository_id,
        head.number == pull.number,
        head.head_sha == pull.head_sha,
    )
    query = (
        sa.select(pull.head_sha, pull.number, pull.user_id)
        .outerjoin_from(records["pull_request"], records["pull_head"], sa.and_(*same))
        .where(
            pull.head_sha.in_(sorted(heads)), sa.func.lower(pull.repo) == repo.lower(), pull.state == "open"
        )
    )
    found: dict[str, list[Row]] = {}
    for row in await tx.rows(query.order_by(head.received_at.nulls_last(), pull.number)):
        found.setdefault(row["head_sha"], []).append(row)
    return {
        sha: [row["number"] for row in rows if row["user_id"] == rows[0]["user_id"]]
        for sha, rows in found.items()
    }


async def gates_on(tx: Transaction, repo: str, heads: Collection[str], name: str) -> list[Row]:
    """Return the gates we made on these commits, whichever pull request asked for them; oldest first."""
    query = sa.select(oot_check).where(
        oot_check.c.head_sha.in_(sorted(heads)), oot_check.c.upstream_repo == repo, oot_check.c.name == name
    )
    return await tx.rows(query.order_by(oot_check.c.created_at, oot_check.c.external_id))


async def checks_of(tx: Transaction, repo: str, number: int) -> list[Row]:
    """Return the check runs we made, or meant to make, on a pull request; oldest first."""
    query = sa.select(oot_check).where(oot_check.c.upstream_repo == repo, oot_check.c.pr_number == number)
    return await tx.rows(query.order_by(oot_check.c.created_at, oot_check.c.external_id))


async def unfinished_heads(tx: Transaction, repo: str, number: int) -> set[str]:
    """Return the heads of a pull request on which a check run of ours has yet to be concluded."""
    query = sa.select(oot_check.c.head_sha).where(
        oot_check.c.upstream_repo == repo, oot_check.c.pr_number == number, oot_check.c.status != "completed"
    )
    return set((await tx.run(query.distinct())).scalars())


async def check_by_id(tx: Transaction, check_run_id: int) -> Row | None:
    """Return what we know of one of our check runs."""
    return await tx.row(sa.select(oot_check).where(oot_check.c.check_run_id == check_run_id))


async def gate_exists(tx: Transaction, repo: str, name: str) -> bool:
    """Return whether a gate was ever published on a repository."""
    query = sa.select(oot_check.c.external_id).where(
        oot_check.c.upstream_repo == repo, oot_check.c.name == name
    )
    return await tx.row(query.limit(1)) is not None


async def intend_check(tx: Transaction, row: Row) -> Intent:
    """Record that a check run is about to be made; raises RetryLater while another process may be making it."""
    anew = {"status": "intended", "conclusion": None, "label_ended": False, "check_run_id": None}
    values = {**row, **anew, "digest": "", "created_at": tx.now, "written_at": 0}
    return await intents.begin(tx, oot_check, values)


async def wrote_check(tx: Transaction, external_id: str, **values: Any) -> None:
    """Record what was written to a check run."""
    change = sa.update(oot_check).where(oot_check.c.external_id == external_id)
    await tx.run(change.values(values | {"written_at": tx.now}))


async def doubt(tx: Transaction, repo: str, head_sha: str, name: str) -> None:
    """Have a check run of a commit written again although it says what it should."""
    change = sa.update(oot_check).where(
        oot_check.c.head_sha == head_sha, oot_check.c.upstream_repo == repo, oot_check.c.name == name
    )
    await tx.run(change.values(digest="", written_at=0))


async def comment(tx: Transaction, repo: str, number: int) -> Row | None:
    """Return what we know of our comment on a pull request."""
    query = sa.select(oot_comment).where(
        oot_comment.c.upstream_repo == repo, oot_comment.c.pr_number == number
    )
    return await tx.row(query)


async def intend_comment(tx: Transaction, repo: str, number: int) -> Intent:
    """Record that the comment is about to be made; raises RetryLater while another process may be making it."""
    values = {"upstream_repo": repo, "pr_number": number, "digest": "", "written_at": 0}
    return await intents.begin(tx, oot_comment, values)


async def wrote_comment(tx: Transaction, repo: str, number: int, **values: Any) -> None:
    """Record what was written to the comment."""
    match = (oot_comment.c.upstream_repo == repo, oot_comment.c.pr_number == number)
    await tx.run(sa.update(oot_comment).where(*match).values(values | {"written_at": tx.now}))


async def mentions(tx: Transaction, repo: str, number: int, head_sha: str) -> dict[str, bool]:
    """Return whose on-calls were named live on a head, by backend; true where that is over."""
    query = sa.select(oot_mention.c.backend_key, oot_mention.c.over).where(
        *_mentioned(repo, number), oot_mention.c.head_sha == head_sha
    )
    return {row["backend_key"]: row["over"] for row in await tx.rows(query)}


async def mentioned(
    tx: Transaction, repo: str, number: int, head_sha: str, live: Sequence[str], *, anew: bool
) -> None:
    """Record whom the comment names live now; nobody is named so twice.

    `anew`: this comment was just made in place of another, so what the other one named is over.
    """
    of_pull = sa.update(oot_mention).where(*_mentioned(repo, number))
    gone = of_pull if anew else of_pull.where(oot_mention.c.backend_key.not_in(live))
    await tx.run(gone.values(over=True))
    for key in live:
        values = {
            "upstream_repo": repo, "pr_number": number, "head_sha": head_sha, "backend_key": key,
            "over": False, "created_at": tx.now,
        }  # fmt: skip
        await tx.run(tx.insert(oot_mention).values(values).on_conflict_do_nothing())


async def merge_bases(
    tx: Transaction, repo: str, heads: Sequence[str], *, base_ref: str
) -> dict[str, str | None]:
    """Return by head where it left a base branch, as GitHub said; those are missing that it was not asked about."""
    table = oot_merge_base
    about = (table.c.upstream_repo == repo, table.c.head_sha.in_(heads), table.c.base_ref == base_ref)
    query = sa.select(table).where(*about)
    return {row["head_sha"]: row["merge_base"] for row in await tx.rows(query)}


async def keep_merge_base(
    tx: Transaction, repo: str, head_sha: str, merge_base: str | None, *, base_ref: str
) -> None:
    """Keep where a head left a base branch: it never changes."""
    values = {
        "upstream_repo": repo, "head_sha": head_sha, "base_ref": base_ref, "merge_base": merge_base, "asked_at": tx.now,
    }  # fmt: skip
    await tx.run(tx.insert(oot_merge_base).values(values).on_conflict_do_nothing())


async def changed_files(
    tx: Transaction, repo: str, number: int, head_sha: str, *, base_ref: str
) -> frozenset[str] | None:
    """Return the files a pull request changes, as GitHub listed them for a head and base; None before it was asked."""
    files = oot_changed_files.c
    about = (files.upstream_repo == repo, files.pr_number == number, files.head_sha == head_sha)
    row = await tx.row(sa.select(oot_changed_files).where(*about, files.base_ref == base_ref))
    return None if row is None else frozenset(row["paths"])


async def keep_changed_files(
    tx: Transaction, repo: str, number: int, head_sha: str, paths: Sequence[str], *, base_ref: str
) -> None:
    """Keep what GitHub listed for a head and base; what was kept of others goes."""
    table = oot_changed_files
    await tx.run(sa.delete(table).where(table.c.upstream_repo == repo, table.c.pr_number == number))
    values = {
        "upstream_repo": repo, "pr_number": number, "head_sha": head_sha, "base_ref": base_ref, "paths": list(paths),
        "asked_at": tx.now,
    }  # fmt: skip
    await tx.run(tx.insert(table).values(values).on_conflict_do_nothing())


def _mentioned(repo: str, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return oot_mention.c.upstream_repo == repo, oot_mention.c.pr_number == number
