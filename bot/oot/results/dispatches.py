"""Dispatches to backends, and what people decided about them: approvals, ignored backends, commands."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import fields, select
from bot.db.statements import RowStatement, Statement, literal_word
from bot.ingest.tables import records
from bot.oot.results import task_keys
from bot.oot.results.tables import (
    AWAITED,
    UNREPORTED,
    CommandRow,
    CountedDispatch,
    DispatchRow,
    IgnoreRow,
    oot_approval,
    oot_command,
    oot_dispatch,
    oot_ignore,
    oot_workflow_job,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.db.transaction import Transaction

UNSENT = ("pending", "held", "waiting")
PAGE = 500  # rows concluded in one transaction
COUNTED_BY = tuple(oot_dispatch.c[name] for name in fields(CountedDispatch))
_pull = records["pull_request"].c
ON_OPEN_HEAD = sa.exists().where(  # it is about the newest commit of an open pull request
    _pull.number == oot_dispatch.c.pr_number,
    _pull.head_sha == oot_dispatch.c.head_sha,
    sa.func.lower(_pull.repo) == sa.func.lower(oot_dispatch.c.upstream_repo),
    _pull.state == "open",
)
ASKS_FOR_A_VERDICT = oot_dispatch.c.action.is_distinct_from("closed")  # a push has no action
# put together once: every task of a pull request asks these
_REPO: sa.BindParameter[str] = sa.bindparam("of_repo")
_NUMBER: sa.BindParameter[int] = sa.bindparam("of_number")
_ID: sa.BindParameter[str] = sa.bindparam("of_id")
_SUPERSEDE = (
    sa.update(oot_dispatch)
    .where(oot_dispatch.c.upstream_repo == _REPO, oot_dispatch.c.pr_number == _NUMBER)
    .where(oot_dispatch.c.state.in_(UNSENT))
    .values(state="superseded")
    .returning(*COUNTED_BY)
)
SUPERSEDE_ALL = Statement(_SUPERSEDE.where(ASKS_FOR_A_VERDICT))
SUPERSEDE_OTHERS = Statement(
    _SUPERSEDE.where(~ASKS_FOR_A_VERDICT | (oot_dispatch.c.head_sha != sa.bindparam("but_head")))
)
_OF_PULL = (oot_dispatch.c.upstream_repo == _REPO, oot_dispatch.c.pr_number == _NUMBER, ASKS_FOR_A_VERDICT)
_BY_AGE = (oot_dispatch.c.created_at, oot_dispatch.c.id)
DISPATCH_BY_ID = RowStatement(select(DispatchRow, oot_dispatch).where(oot_dispatch.c.id == _ID))
COUNTED = Statement(sa.select(*COUNTED_BY).where(oot_dispatch.c.id == _ID))
DISPATCHES_BY_ID = RowStatement(
    select(DispatchRow, oot_dispatch).where(oot_dispatch.c.id.in_(sa.bindparam("ids", expanding=True)))
)
_of_pull = select(DispatchRow, oot_dispatch).where(*_OF_PULL).order_by(*_BY_AGE)
OF_PULL = RowStatement(_of_pull)
OF_HEADS = RowStatement(_of_pull.where(oot_dispatch.c.head_sha.in_(sa.bindparam("heads", expanding=True))))
HEADS_OF_PULL = Statement(
    sa.select(oot_dispatch.c.head_sha)
    .where(*_OF_PULL)
    .group_by(oot_dispatch.c.head_sha)
    .order_by(sa.func.max(oot_dispatch.c.created_at), sa.func.max(oot_dispatch.c.id))
)
BEGIN_ATTEMPT = Statement(
    sa.update(oot_dispatch)
    .where(oot_dispatch.c.id == _ID, oot_dispatch.c.state == literal_word("pending"))
    .values(
        attempts=sa.bindparam("attempt"),
        # an earlier attempt may have arrived
        dispatched_at=sa.func.coalesce(
            oot_dispatch.c.dispatched_at, sa.bindparam("now", type_=sa.BigInteger)
        ),
    )
)
APPROVED = Statement(
    sa.select(oot_approval.c.login).where(
        oot_approval.c.upstream_repo == _REPO,
        oot_approval.c.pr_number == _NUMBER,
        oot_approval.c.head_sha == sa.bindparam("of_head"),
    )
)
SETTLE_DISPATCH = Statement(
    sa.update(oot_dispatch)
    .where(oot_dispatch.c.id == sa.bindparam("of_id"))
    .where(
        (oot_dispatch.c.state == literal_word("pending")) | (oot_dispatch.c.state == literal_word("waiting"))
    )
    .returning(*COUNTED_BY)
)
DISPATCH, JOB = oot_dispatch.c, oot_workflow_job.c
OPEN = (*UNSENT, "sent")

WaitingPulls = dict[str, int]  # backend, case folded -> how many pull requests
# put together once: every verdict asks these
LATEST_COMMANDS = RowStatement(
    select(CommandRow, oot_command)
    .where(
        oot_command.c.upstream_repo == _REPO,
        oot_command.c.pr_number == _NUMBER,
        oot_command.c.state != "seen",
    )
    .order_by(oot_command.c.created_at.desc(), oot_command.c.comment_id.desc(), oot_command.c.position.desc())
    .limit(sa.bindparam("most", type_=sa.Integer))
)
IGNORED_BACKENDS = RowStatement(
    select(IgnoreRow, oot_ignore).where(
        oot_ignore.c.upstream_repo == _REPO, oot_ignore.c.pr_number == _NUMBER
    )
)


def dispatch_id(delivery_id: str, backend: str) -> str:
    """Return our own key of the dispatch of one delivery to one backend."""
    return hashlib.sha256(f"{delivery_id}\n{backend.casefold()}".encode()).hexdigest()[:32]


async def add_dispatch(tx: Transaction, row: Mapping[str, object]) -> bool:
    """Record a dispatch before it is sent; returns False when it was recorded already."""
    return bool((await tx.upsert(oot_dispatch, [row])).rowcount)


async def get_dispatch(tx: Transaction, identifier: str | None) -> DispatchRow | None:
    """Return one dispatch by our own key."""
    return await tx.fetch_first(DISPATCH_BY_ID, {"of_id": identifier})


async def get_by_id(tx: Transaction, identifiers: Collection[str]) -> dict[str, DispatchRow]:
    """Return some dispatches by our own key."""
    if not identifiers:
        return {}
    rows = await tx.fetch(DISPATCHES_BY_ID, {"ids": sorted(identifiers)})
    return {row["id"]: row for row in rows}


async def read_heads_of_pull(tx: Transaction, repo: str, number: int) -> list[str]:
    """Return the heads of a pull request with dispatches that ask for a verdict, the oldest first."""
    return list((await tx.run(HEADS_OF_PULL, {"of_repo": repo, "of_number": number})).scalars())


async def count_of_pull(tx: Transaction, repo: str, number: int) -> int:
    """Count the dispatches of a pull request that ask for a verdict."""
    query = sa.select(sa.func.count()).select_from(oot_dispatch)
    return int((await tx.run(query.where(*_of(repo, number), ASKS_FOR_A_VERDICT))).scalar() or 0)


async def read_dispatches_of_pull(
    tx: Transaction, repo: str, number: int, *, heads: Collection[str] | None = None
) -> list[DispatchRow]:
    """Return every dispatch of a pull request, or of some heads, that asks for a verdict, oldest first."""
    of_pull = {"of_repo": repo, "of_number": number}
    if heads is None:
        return await tx.fetch(OF_PULL, of_pull)
    return await tx.fetch(OF_HEADS, of_pull | {"heads": sorted(heads)})


async def read_dispatches_of_head(tx: Transaction, repo: str, head_sha: str) -> list[DispatchRow]:
    """Return every dispatch of a head that asks for a verdict, oldest first."""
    query = select(DispatchRow, oot_dispatch).where(
        oot_dispatch.c.head_sha == head_sha, oot_dispatch.c.upstream_repo == repo, ASKS_FOR_A_VERDICT
    )
    return await tx.fetch(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id))


async def change_dispatch(tx: Transaction, identifier: str, **values: Any) -> None:
    """Set columns of one dispatch."""
    same = oot_dispatch.c.id == identifier
    was = await tx.row(COUNTED, {"of_id": identifier}) if "state" in values else None
    if was:
        tx.note_changed("oot_dispatch", [was | {"state": values["state"], "state_before": was["state"]}])
    await tx.run(sa.update(oot_dispatch).where(same).values(values))


async def begin_attempt(tx: Transaction, dispatch: Mapping[str, Any]) -> bool:
    """Record that a dispatch is about to be sent; returns False when it has been dropped."""
    intent = {"of_id": dispatch["id"], "attempt": dispatch["attempts"] + 1, "now": tx.now}
    return bool((await tx.run(BEGIN_ATTEMPT, intent)).rowcount)


async def settle_dispatch(tx: Transaction, identifier: str, *, state: str, **values: Any) -> bool:
    """Record the outcome of sending a dispatch; returns False when it has been dropped."""
    settled = await tx.rows(SETTLE_DISPATCH, {"of_id": identifier, "state": state} | values)
    tx.note_changed("oot_dispatch", settled)
    return bool(settled)


async def supersede_unsent(tx: Transaction, repo: str, number: int, *, but_head: str | None) -> None:
    """Drop unsent dispatches for other heads of an open pull request, and those of its closing.

    `but_head` None: it is closed, so unsent dispatches for any head are dropped.
    """
    statement = SUPERSEDE_ALL if but_head is None else SUPERSEDE_OTHERS
    done = await tx.run(statement, {"of_repo": repo, "of_number": number, "but_head": but_head})
    tx.note_changed("oot_dispatch", map(dict, done.mappings()))


async def last_sent(tx: Transaction, repo: str, number: int, backend_key: str) -> DispatchRow | None:
    """Return the last dispatch of a pull request's commit that a backend was sent, or may have been; None if none."""
    query = select(DispatchRow, oot_dispatch).where(
        *_of(repo, number),
        ASKS_FOR_A_VERDICT,
        oot_dispatch.c.event_type == "pull_request",
        oot_dispatch.c.backend_key == backend_key,
        oot_dispatch.c.dispatched_at.is_not(None),
    )
    newest = oot_dispatch.c.dispatched_at.desc(), oot_dispatch.c.created_at.desc(), oot_dispatch.c.id
    return await tx.fetch_first(query.order_by(*newest).limit(1))


async def approve_head(tx: Transaction, repo: str, number: int, head_sha: str, login: str) -> None:
    """Record that one head was approved for backends that trust only some authors."""
    values = {
        "upstream_repo": repo, "pr_number": number, "head_sha": head_sha, "login": login, "created_at": tx.now,
    }  # fmt: skip
    await tx.run(tx.insert(oot_approval).values(values).on_conflict_do_nothing())


async def is_head_approved(tx: Transaction, repo: str, number: int, head_sha: str) -> bool:
    """Return whether a head was approved."""
    return await tx.row(APPROVED, {"of_repo": repo, "of_number": number, "of_head": head_sha}) is not None


async def lock_pull(tx: Transaction, repo: str, number: int | None) -> None:
    """Lock a pull request until the transaction ends: dispatches, approvals and re-runs take turns."""
    if not tx.sqlite:  # which has one writer at a time
        await tx.run(
            sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(task_keys.pull_key(repo, number or 0))))
        )


async def read_not_installed(tx: Transaction, account: str) -> list[DispatchRow]:
    """Return `not_installed` dispatches to an account's repositories that are still the newest on an open head."""
    newer = oot_dispatch.alias("newer")
    same = ("upstream_repo", "pr_number", "head_sha", "backend_key", "event_type")
    overtaken = sa.exists().where(
        *(newer.c[name] == oot_dispatch.c[name] for name in same),
        sa.tuple_(newer.c.created_at, newer.c.id) > sa.tuple_(oot_dispatch.c.created_at, oot_dispatch.c.id),
    )
    query = select(DispatchRow, oot_dispatch).where(
        oot_dispatch.c.state == "not_installed",
        oot_dispatch.c.backend_key.startswith(f"{account.casefold()}/", autoescape=True),
        ASKS_FOR_A_VERDICT,
        ON_OPEN_HEAD,
        ~overtaken,
    )
    return await tx.fetch(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id))


async def others_since(tx: Transaction, dispatch: Mapping[str, Any], since: int) -> int:
    """Count the other dispatches without a known run that were sent to a backend since a time (milliseconds)."""
    query = sa.select(sa.func.count()).where(
        oot_dispatch.c.backend_key == dispatch["backend_key"],
        oot_dispatch.c.id != dispatch["id"],
        oot_dispatch.c.dispatched_at >= since,
        oot_dispatch.c.run_id.is_(None),
    )
    return int((await tx.run(query)).scalar() or 0)


async def runs_of_others(tx: Transaction, dispatch: Mapping[str, Any], runs: Sequence[str]) -> set[str]:
    """Return which of these runs of a backend belong to other dispatches."""
    sent, job = oot_dispatch.c, oot_workflow_job.c
    started = sa.select(sent.run_id).where(
        sent.backend_key == dispatch["backend_key"], sent.id != dispatch["id"], sent.run_id.in_(runs)
    )
    reported = sa.select(job.run_id).where(
        sa.func.lower(job.downstream_repo) == dispatch["backend_key"],
        job.dispatch_id != dispatch["id"],
        job.run_id.in_(runs),
    )
    return set((await tx.run(started.union(reported))).scalars())


async def read_timed_out(tx: Transaction, timeouts: Timeouts) -> list[DispatchRow]:
    """Return dispatches sent longer ago than their backends may take that have no report; L1 never reports."""
    query = select(DispatchRow, oot_dispatch).where(
        oot_dispatch.c.state == "sent",
        oot_dispatch.c.created_at < tx.now - timeouts.shortest,
        oot_dispatch.c.dispatched_at < timeouts.cutoff(tx.now, oot_dispatch.c.backend_key),
        AWAITED,
    )
    return await tx.fetch(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id).limit(PAGE))


async def unsent_for_too_long(tx: Transaction, timeouts: Timeouts) -> list[str]:
    """Return the ids of dispatches that have waited to be sent for longer than their backends may take to report."""
    query = sa.select(oot_dispatch.c.id).where(
        oot_dispatch.c.state == "pending",
        oot_dispatch.c.created_at < timeouts.cutoff(tx.now, oot_dispatch.c.backend_key),
    )
    return list((await tx.run(query.order_by(oot_dispatch.c.id).limit(PAGE))).scalars())


async def end_unanswered(tx: Transaction, identifier: str, reason: str) -> bool:
    """Finish a dispatch without a report; returns False if it has one, or is no longer `sent`.

    It never started, or was not run where the backend need not answer.
    """
    end = sa.case((oot_dispatch.c.answers == "some", "not_run"), else_="never_started")
    return await _finish(tx, identifier, state=end, error=reason)


async def end_cancelled(tx: Transaction, identifier: str, reason: str) -> bool:
    """Finish a dispatch whose run was cancelled before it reported; returns False as `end_unanswered` does."""
    return await _finish(tx, identifier, state="cancelled", error=reason)


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Milliseconds by backend (name case folded), and for all others."""

    default: int
    own: Mapping[str, int]

    def of(self, backend: str) -> int:
        """Return one backend's timeout."""
        return self.own.get(backend.casefold(), self.default)

    @property
    def shortest(self) -> int:
        """The shortest of all."""
        return min([self.default, *self.own.values()])

    def cutoff(self, now: int, backend_key: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """Return the time before which a row of a backend has timed out."""
        if not self.own:
            return sa.literal(now - self.default, sa.BigInteger)
        whens = {key: sa.literal(now - limit, sa.BigInteger) for key, limit in sorted(self.own.items())}
        return sa.case(whens, value=backend_key, else_=sa.literal(now - self.default, sa.BigInteger))


async def count_waiting_by_backend(tx: Transaction, *, since: int, hidden: Collection[str]) -> WaitingPulls:
    """Count the open pull requests that wait for each backend; dispatches before `since` do not count."""
    waiting_pulls = sa.select(DISPATCH.backend_key, DISPATCH.upstream_repo, DISPATCH.pr_number).distinct()
    unreported = waiting_pulls.where(
        DISPATCH.state.in_(OPEN), AWAITED, DISPATCH.created_at >= since, ON_OPEN_HEAD
    )
    asked = (DISPATCH.level > 1, DISPATCH.action.is_distinct_from("closed"), DISPATCH.created_at >= since)
    running = waiting_pulls.join(oot_workflow_job, JOB.dispatch_id == DISPATCH.id).where(
        JOB.status == "in_progress", *asked, ON_OPEN_HEAD
    )
    pulls: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
    for query in (unreported, running):
        for backend_key, repo, number in await tx.run(query):
            if repo.casefold() not in hidden:
                pulls[backend_key].add((repo.casefold(), number))
    return {key: len(waiting) for key, waiting in pulls.items()}


async def record_command(tx: Transaction, row: Mapping[str, object]) -> CommandRow:
    """Record a command before it is executed, once however often its comment arrives; returns its row."""
    blank = {"head_sha": None, "state": "seen", "answer": "", "created_at": tx.now}
    await tx.run(tx.insert(oot_command).values({**blank, **row}).on_conflict_do_nothing())
    recorded = await find_command(tx, row)
    assert recorded is not None
    return recorded


async def find_command(tx: Transaction, row: Mapping[str, object]) -> CommandRow | None:
    """Return a recorded command by its comment and position."""
    return await tx.fetch_first(select(CommandRow, oot_command).where(*_is_command(row)))


async def settle_command(
    tx: Transaction, command: Mapping[str, Any], *, state: str, answer: str, head_sha: str | None
) -> None:
    """Record the outcome of a command."""
    change = sa.update(oot_command).where(*_is_command(command))
    await tx.run(change.values(state=state, answer=answer, head_sha=head_sha))


async def amend_answer(
    tx: Transaction, repo: str, number: int, *, before: str, answer: str, known_by: str
) -> None:
    """Replace the text `before` in the last answer on a pull request that has it, and count its command as refused.

    `known_by` is part of the new text: if a newer answer contains it, nothing is done.
    """
    about = (oot_command.c.upstream_repo == repo, oot_command.c.pr_number == number)
    either = [oot_command.c.answer.contains(text, autoescape=True) for text in (before, known_by)]
    order = (oot_command.c.created_at.desc(), oot_command.c.comment_id.desc(), oot_command.c.position.desc())
    query = select(CommandRow, oot_command).where(*about, sa.or_(*either)).order_by(*order)
    last = await tx.fetch_first(query.limit(1))
    if last and before in last["answer"]:
        amended = last["answer"].replace(before, answer)
        await settle_command(tx, last, state="refused", answer=amended, head_sha=last["head_sha"])


async def read_latest_commands(tx: Transaction, repo: str, number: int, *, limit: int) -> list[CommandRow]:
    """Return the last settled commands of a pull request, oldest first."""
    which = {"of_repo": repo, "of_number": number, "most": limit}
    return (await tx.fetch(LATEST_COMMANDS, which))[::-1]


async def count_commands_by_person(tx: Transaction, repo: str, login: str, *, since: int) -> int:
    """Count the commands that a person gave in a repository since a time (epoch milliseconds)."""
    query = sa.select(sa.func.count()).where(
        oot_command.c.upstream_repo == repo, oot_command.c.login == login, oot_command.c.created_at >= since
    )
    return int((await tx.run(query)).scalar() or 0)


async def count_commands_on_pull(tx: Transaction, repo: str, number: int, *, since: int) -> int:
    """Count the commands given on a pull request since a time (epoch milliseconds)."""
    query = sa.select(sa.func.count()).where(
        oot_command.c.upstream_repo == repo,
        oot_command.c.pr_number == number,
        oot_command.c.created_at >= since,
    )
    return int((await tx.run(query)).scalar() or 0)


async def ignore_backend(tx: Transaction, row: Mapping[str, object]) -> None:
    """Count a backend as passed on one head and base branch; the last of several calls counts."""
    made = {**row, "created_at": tx.now}
    await tx.upsert(oot_ignore, [made], replaced=("base_ref", "login", "reason"))


async def read_ignored_backends(tx: Transaction, repo: str, number: int) -> dict[tuple[str, str], IgnoreRow]:
    """Return which backends are ignored on a pull request, by head and backend (case folded)."""
    rows = await tx.fetch(IGNORED_BACKENDS, {"of_repo": repo, "of_number": number})
    return {(row["head_sha"], row["backend_key"]): row for row in rows}


async def _finish(tx: Transaction, identifier: str, **values: Any) -> bool:
    matches = (oot_dispatch.c.id == identifier, oot_dispatch.c.state == "sent", UNREPORTED)
    change_of = sa.update(oot_dispatch).where(*matches).values(values)
    done = [dict(row) for row in (await tx.run(change_of.returning(*COUNTED_BY))).mappings()]
    tx.note_changed("oot_dispatch", done)
    return bool(done)


def _of(repo: str, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return oot_dispatch.c.upstream_repo == repo, oot_dispatch.c.pr_number == number


def _is_command(command: Mapping[str, object]) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        oot_command.c.upstream_repo == command["upstream_repo"],
        oot_command.c.comment_id == command["comment_id"],
        oot_command.c.position == command["position"],
    )
