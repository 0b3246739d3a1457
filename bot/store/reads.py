"""What do pages and JSON read that no task needs? Windows of jobs, records, who is private."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain.reading import Kind
from bot.store import names
from bot.store.job_reads import WITHOUT_TESTS, whole
from bot.store.tables import oot_dispatch, oot_workflow_job, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.domain.records import RecordType
    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB = oot_workflow_job.c
ORDER_OF_JOBS = ("received_at", "run_attempt", "job_key")  # of a backend, newest first
MOST_RELAYED = 2_000  # jobs of an outside relay that are shown of one pull request
MOST_TEXT = 8_000_000  # characters of records read for one page: a commit's message alone may have more


@dataclass(frozen=True, kw_only=True)
class Private:
    """Repositories whose rows may not be shown, by name and by id."""

    names: frozenset[str]  # case folded
    ids: frozenset[int]


async def private(tx: Transaction, asked: Iterable[str]) -> Private:
    """Return which repositories are private, as far as their records say, by every name they ever had.

    Only those that are asked for, and those our own rows are about: strangers' may be any number.
    """
    ids = await names.private_ids(tx, {*asked, *await names.of_upstreams(tx, oot_dispatch, oot_workflow_job)})
    return Private(names=frozenset(await names.of_ids(tx, ids)), ids=frozenset(ids))


async def latest_jobs(
    tx: Transaction,
    backend: str,
    *,
    since: int,
    limit: int,
    hidden: Iterable[str] = (),
    events: Iterable[str] | None = None,
    before: tuple[str | int, ...] | None = None,
) -> list[Row]:
    """Return the newest jobs of a backend in full, without those of `hidden` upstreams (case folded).

    `before` holds the last seen one's values of `ORDER_OF_JOBS`.
    """
    order = [JOB[name] for name in ORDER_OF_JOBS]
    query = WITHOUT_TESTS.where(
        sa.func.lower(JOB.downstream_repo) == backend.lower(),
        JOB.received_at >= since,
        sa.func.lower(JOB.upstream_repo).not_in(list(hidden)),
        sa.true() if events is None else JOB.event_type.in_(sorted(events)),
    )
    if before:
        query = query.where(_after(order, before))
    return await whole(tx, query.order_by(*(part.desc() for part in order)).limit(limit))


async def jobs_of_pull(
    tx: Transaction, names: Iterable[str], number: int, *, sha: str | None, limit: int
) -> list[Row]:
    """Return the newest job rows of a pull request, or of one head, every attempt, as they were first heard of."""
    query = _of_pull(names, number)
    return await _newest(tx, query if sha is None else query.where(JOB.head_sha == sha), limit)


async def jobs_without_dispatch(tx: Transaction, names: Iterable[str], number: int) -> list[Row]:
    """Return the newest of a pull request's job rows that an outside relay told of and we had not asked for."""
    return await _newest(tx, _of_pull(names, number).where(JOB.dispatch_id.is_(None)), MOST_RELAYED)


def _of_pull(names: Iterable[str], number: int) -> sa.Select[Any]:
    return WITHOUT_TESTS.where(JOB.upstream_repo.in_(list(names)), JOB.pr_number == number)


async def _newest(tx: Transaction, query: sa.Select[Any], limit: int) -> list[Row]:
    order = (JOB.received_at.desc(), JOB.run_attempt.desc(), JOB.job_key.desc())
    return (await whole(tx, query.order_by(*order).limit(limit)))[::-1]


async def jobs_on_commit(
    tx: Transaction, repo: str, sha: str, *, limit: int, events: Iterable[str] | None = None
) -> list[Row]:
    """Return the newest jobs on the commits of a repository that begin with `sha`, whatever asked for them."""
    query = WITHOUT_TESTS.where(
        JOB.head_sha >= sha,
        JOB.head_sha < sha + "g",  # the first letter after the digits of a SHA
        sa.func.lower(JOB.upstream_repo) == repo.lower(),
        sa.true() if events is None else JOB.event_type.in_(sorted(events)),
    )
    order = (JOB.received_at.desc(), JOB.run_attempt.desc(), JOB.job_key)
    return await whole(tx, query.order_by(*order).limit(limit))


async def pull_of_head(tx: Transaction, repo: str, sha: str) -> Row | None:
    """Return repo, number and head_sha of the newest pull request with a head that begins with `sha`."""
    seen = records["pull_head"].c
    sources = (
        (seen.repo, seen.number, seen.head_sha, seen.received_at),
        (
            oot_dispatch.c.upstream_repo,
            oot_dispatch.c.pr_number,
            oot_dispatch.c.head_sha,
            oot_dispatch.c.created_at,
        ),
        (JOB.upstream_repo, JOB.pr_number, JOB.head_sha, JOB.received_at),
    )
    for name, number, head, at in sources:
        query = sa.select(name.label("repo"), number.label("number"), head.label("head_sha")).where(
            head >= sha,
            head < sha + "g",  # the first letter after the digits of a SHA
            sa.func.lower(name) == repo.lower(),
            number.is_not(None),
        )
        if found := await tx.row(query.order_by(at.desc()).limit(1)):
            return found
    return None


async def record(
    tx: Transaction,
    kind: RecordType,
    repo: str,
    identifier: str | int,
    *,
    hidden: Private,
    attempt: int | None = None,
) -> Row | None:
    """Return one record of a repository, under any of its names; `identifier` is a number where there is one."""
    table = records[kind.table]
    numbered = kind.table in {"issue", "pull_request"}
    column = table.c.number if numbered else table.c[kind.key[0]]
    query = (await _of_repository(tx, kind, repo, hidden)).where(column == identifier)
    if attempt is not None:
        query = query.where(table.c.run_attempt == attempt)
    return await tx.row(query.order_by(*(part.desc() for part in _order(kind))).limit(1))


async def record_page(
    tx: Transaction,
    kind: RecordType,
    repo: str,
    *,
    hidden: Private,
    before: tuple[str | int, ...] | None,
    limit: int,
) -> tuple[list[Row], bool]:
    """Return the newest records of a repository, under any of its names, after those seen, and whether more follow.

    `before` holds the last one's values of `order_of`. A page ends early where its texts are long.
    """
    order = _order(kind)
    query = await _of_repository(tx, kind, repo, hidden)
    if before:
        query = query.where(_after(order, before))
    query = query.order_by(*(part.desc() for part in order))
    sizes = (await tx.run(query.with_only_columns(_size(kind)).limit(limit + 1))).scalars().all()
    fitting = sum(size <= MOST_TEXT for size in itertools.accumulate(sizes[:limit]))
    fitting = max(fitting, min(len(sizes), 1))
    return await tx.rows(query.limit(fitting)), fitting < len(sizes)


def _size(kind: RecordType) -> sa.ColumnElement[int]:
    """Return how many characters the texts of a record have."""
    table = records[kind.table]
    long = [table.c[one.name] for one in kind.columns if one.kind in {Kind.TEXT, Kind.TEXTS, Kind.JSON}]
    lengths = [sa.func.coalesce(sa.func.length(sa.cast(one, sa.Text)), 0) for one in long]
    return reduce(operator.add, lengths)


def _after(order: Sequence[sa.ColumnElement[Any]], before: tuple[str | int, ...]) -> sa.ColumnElement[bool]:
    """Return what holds of the rows that follow, newest first, one with these values."""
    last = [sa.literal(value, part.type) for value, part in zip(before, order, strict=True)]
    return sa.tuple_(*order) < sa.tuple_(*last)


async def _of_repository(tx: Transaction, kind: RecordType, repo: str, hidden: Private) -> Any:
    """Return the query for a repository's records; what may not be shown is not among them, nor counted."""
    table = records[kind.table]
    name, known = sa.func.lower(table.c.repo), await names.of_same(tx, repo)
    query = sa.select(table).where(name.in_(sorted(known)))
    if hidden.ids or hidden.names:
        query = query.where(
            table.c.repository_id.not_in(sorted(hidden.ids)), name.not_in(sorted(hidden.names))
        )
    return query


def order_of(kind: RecordType) -> tuple[str, ...]:
    """Return the columns records are sorted by: GitHub's ids grow with time, delivery GUIDs do not."""
    return ("received_at", "guid") if "guid" in kind.key else kind.key


def _order(kind: RecordType) -> list[sa.Column[Any]]:
    return [records[kind.table].c[name] for name in order_of(kind)]
