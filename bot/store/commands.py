"""What did people ask for in comments, and what came of it? Reads and writes of oot_command and oot_ignore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.pull_tables import oot_command, oot_ignore

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]


async def see(tx: Transaction, row: Row) -> Row:
    """Record a command before it is carried out; returns it as recorded first, however often its comment comes."""
    blank = {"head_sha": None, "state": "seen", "answer": "", "created_at": tx.now}
    await tx.run(tx.insert(oot_command).values(blank | row).on_conflict_do_nothing())
    found = await find(tx, row)
    assert found is not None
    return found


async def find(tx: Transaction, row: Row) -> Row | None:
    """Return a command as it was recorded, by its comment and place."""
    return await tx.row(sa.select(oot_command).where(*_is(row)))


async def settle(tx: Transaction, command: Row, *, state: str, answer: str, head_sha: str | None) -> None:
    """Record what came of a command."""
    change = sa.update(oot_command).where(*_is(command))
    await tx.run(change.values(state=state, answer=answer, head_sha=head_sha))


async def amend(tx: Transaction, repo: str, number: int, *, said: str, answer: str, known_by: str) -> None:
    """Put another sentence in place of what was `said` last on a pull request: it turned out impossible.

    That command counts as refused. `known_by` is part of the other sentence: where that is the newer, nothing is done.
    """
    about = (oot_command.c.upstream_repo == repo, oot_command.c.pr_number == number)
    either = [oot_command.c.answer.contains(text, autoescape=True) for text in (said, known_by)]
    order = (oot_command.c.created_at.desc(), oot_command.c.comment_id.desc(), oot_command.c.position.desc())
    last = await tx.row(sa.select(oot_command).where(*about, sa.or_(*either)).order_by(*order).limit(1))
    if last and said in last["answer"]:
        told = last["answer"].replace(said, answer)
        await settle(tx, last, state="refused", answer=told, head_sha=last["head_sha"])


async def latest(tx: Transaction, repo: str, number: int, *, limit: int) -> list[Row]:
    """Return the last settled commands of a pull request, oldest first."""
    query = sa.select(oot_command).where(
        oot_command.c.upstream_repo == repo, oot_command.c.pr_number == number, oot_command.c.state != "seen"
    )
    order = (oot_command.c.created_at.desc(), oot_command.c.comment_id.desc(), oot_command.c.position.desc())
    return (await tx.rows(query.order_by(*order).limit(limit)))[::-1]


async def count_by_person(tx: Transaction, repo: str, login: str, *, since: int) -> int:
    """Return how many commands a person gave in a repository since a time (epoch milliseconds)."""
    query = sa.select(sa.func.count()).where(
        oot_command.c.upstream_repo == repo, oot_command.c.login == login, oot_command.c.created_at >= since
    )
    return int((await tx.run(query)).scalar() or 0)


async def count_on_pull(tx: Transaction, repo: str, number: int, *, since: int) -> int:
    """Return how many commands were given on a pull request since a time (epoch milliseconds)."""
    query = sa.select(sa.func.count()).where(
        oot_command.c.upstream_repo == repo,
        oot_command.c.pr_number == number,
        oot_command.c.created_at >= since,
    )
    return int((await tx.run(query)).scalar() or 0)


async def ignore(tx: Transaction, row: Row) -> None:
    """Count a backend as passed on one head and base branch; the last word of several is kept."""
    insert = tx.insert(oot_ignore).values(row | {"created_at": tx.now})
    said = {name: insert.excluded[name] for name in ("base_ref", "login", "reason")}
    key = ["upstream_repo", "pr_number", "head_sha", "backend_key"]
    await tx.run(insert.on_conflict_do_update(index_elements=key, set_=said))


async def ignored(tx: Transaction, repo: str, number: int) -> dict[tuple[str, str], Row]:
    """Return which backends are ignored on a pull request, by head and backend (case folded)."""
    query = sa.select(oot_ignore).where(oot_ignore.c.upstream_repo == repo, oot_ignore.c.pr_number == number)
    return {(row["head_sha"], row["backend_key"]): row for row in await tx.rows(query)}


def _is(command: Row) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        oot_command.c.upstream_repo == command["upstream_repo"],
        oot_command.c.comment_id == command["comment_id"],
        oot_command.c.position == command["position"],
    )
