"""Commands given in comments, and ignored backends: reads and writes of oot_command and oot_ignore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.oot.results.tables import CommandRow, IgnoreRow, oot_command, oot_ignore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.db.transaction import Transaction

# put together once: every verdict asks these
_REPO: sa.BindParameter[str] = sa.bindparam("of_repo")
_NUMBER: sa.BindParameter[int] = sa.bindparam("of_number")
LATEST = RowStatement(
    select(CommandRow, oot_command)
    .where(
        oot_command.c.upstream_repo == _REPO,
        oot_command.c.pr_number == _NUMBER,
        oot_command.c.state != "seen",
    )
    .order_by(oot_command.c.created_at.desc(), oot_command.c.comment_id.desc(), oot_command.c.position.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
)
IGNORED = RowStatement(
    select(IgnoreRow, oot_ignore).where(
        oot_ignore.c.upstream_repo == _REPO, oot_ignore.c.pr_number == _NUMBER
    )
)


async def record(tx: Transaction, row: Mapping[str, object]) -> CommandRow:
    """Record a command before it is executed, once however often its comment arrives; returns the recorded row."""
    blank = {"head_sha": None, "state": "seen", "answer": "", "created_at": tx.now}
    await tx.run(tx.insert(oot_command).values({**blank, **row}).on_conflict_do_nothing())
    found = await find(tx, row)
    assert found is not None
    return found


async def find(tx: Transaction, row: Mapping[str, object]) -> CommandRow | None:
    """Return a recorded command by its comment and position."""
    return await tx.fetch_first(select(CommandRow, oot_command).where(*_is(row)))


async def settle(
    tx: Transaction, command: Mapping[str, Any], *, state: str, answer: str, head_sha: str | None
) -> None:
    """Record the outcome of a command."""
    change = sa.update(oot_command).where(*_is(command))
    await tx.run(change.values(state=state, answer=answer, head_sha=head_sha))


async def amend(tx: Transaction, repo: str, number: int, *, before: str, answer: str, known_by: str) -> None:
    """Replace the text `before` in the last answer on a pull request that has it: the command turned out impossible.

    That command counts as refused. `known_by` is part of the new text: if a newer answer has that, nothing is done.
    """
    about = (oot_command.c.upstream_repo == repo, oot_command.c.pr_number == number)
    either = [oot_command.c.answer.contains(text, autoescape=True) for text in (before, known_by)]
    order = (oot_command.c.created_at.desc(), oot_command.c.comment_id.desc(), oot_command.c.position.desc())
    query = select(CommandRow, oot_command).where(*about, sa.or_(*either)).order_by(*order)
    last = await tx.fetch_first(query.limit(1))
    if last and before in last["answer"]:
        amended = last["answer"].replace(before, answer)
        await settle(tx, last, state="refused", answer=amended, head_sha=last["head_sha"])


async def latest(tx: Transaction, repo: str, number: int, *, limit: int) -> list[CommandRow]:
    """Return the last settled commands of a pull request, oldest first."""
    which = {"of_repo": repo, "of_number": number, "most": limit}
    return (await tx.fetch(LATEST, which))[::-1]


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


def _is(command: Mapping[str, object]) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        oot_command.c.upstream_repo == command["upstream_repo"],
        oot_command.c.comment_id == command["comment_id"],
        oot_command.c.position == command["position"],
    )


async def ignore(tx: Transaction, row: Mapping[str, object]) -> None:
    """Count a backend as passed on one head and base branch; the last of several calls counts."""
    made = {**row, "created_at": tx.now}
    await tx.upsert(oot_ignore, [made], replaced=("base_ref", "login", "reason"))


async def ignored(tx: Transaction, repo: str, number: int) -> dict[tuple[str, str], IgnoreRow]:
    """Return which backends are ignored on a pull request, by head and backend (case folded)."""
    found = await tx.fetch(IGNORED, {"of_repo": repo, "of_number": number})
    return {(row["head_sha"], row["backend_key"]): row for row in found}
