"""Tables and statements of reports: static keys, quotas, pings, commits that are not verified yet."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from bot.core.clock import JITTER
from bot.db.rows import Big, Bytes, Int, Millis, Text, select, table
from bot.db.statements import Statement
from bot.ingest.record_rows import WorkflowRunRow
from bot.ingest.tables import records
from bot.oot.results import jobs
from bot.oot.results.tables import (
    BACKEND_OF_HEAD,
    SELF_TRIGGERED,
    WITHOUT_COMMIT,
    CountedJob,
    JobFlags,
    oot_workflow_job,
)
from bot.oot.statistics.countable_jobs import has_flag

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.db.transaction import Transaction
    from bot.oot.reports.authorization import Flags

KEY_PREFIX = "ootk_"
ID_BYTES, SECRET_BYTES = 6, 32
MOST_LENGTH = 200  # characters
USED_EVERY = 60_000  # milliseconds between two updates of used_at
UNKNOWN_DIGEST = hashlib.sha256(b"no such key").digest()
MINUTE, HOUR = 60, 3600  # seconds
LONGEST_WINDOW = 3600  # seconds
LOCK = 1  # namespace of these advisory locks
# the backend that says it ran on it, case folded; SHA, or the id it gave where the commit is unknown
Commit = tuple[str, str]
JOBS_PER_QUERY = 500  # jobs settled in one transaction
JOB = oot_workflow_job.c
UNVERIFIED = has_flag("unverified")
SETTLED = {"flags": "kept", "upstream_repo": "home", "head_sha": "commit"}  # column -> its parameter
UNASKED = (JOB.dispatch_id.is_(None), JOB.pr_number.is_(None), JOB.event_type.in_(SELF_TRIGGERED))


class KeyName(TypedDict):
    """The public part of a static key, and whose it is."""

    id: Text  # the part of a static key that is no secret
    repo: Text


class KeyUse(TypedDict):
    """What a static key is for, and since and until when it is used."""

    note: Text
    created_at: Millis
    used_at: Millis | None
    revoked_at: Millis | None


class KeySecret(TypedDict):
    """What a static key is recognised by."""

    digest: Bytes  # SHA-256 of the secret part


class KeyRow(KeyName, KeySecret, KeyUse):
    """A static key of a backend."""


class ListedKeyRow(KeyName, KeyUse):
    """A static key without its digest."""


oot_key = table("oot_key", KeyRow, key=("id",))


class RateRow(TypedDict):
    """How many reports of a caller were accepted in one second."""

    caller: Text
    second: Big  # epoch seconds
    accepted: Int


oot_rate = table("oot_rate", RateRow, key=("caller", "second"))


class PingRow(TypedDict):
    """A test dispatch: it is on no pull request and in no statistics."""

    id: Text  # its delivery_id, which tells it from a dispatch
    backend: Text
    backend_key: Text  # the name, case folded
    requested_by: Text
    cause: Text  # the comment or form that asked for it
    created_at: Millis
    token_jti: Text
    state: Text  # pending | sent | not_installed | failed
    error: Text | None  # why it was not sent
    sent_at: Millis | None
    run_id: Text | None  # of its run, where the answer to the dispatch or a report says so
    started_at: Millis | None  # when a report that it began was accepted
    completed_at: Millis | None
    conclusion: Text | None
    refused_at: Millis | None
    refusal: Text | None  # why a report on it was refused last


oot_ping = table("oot_ping", PingRow, sa.UniqueConstraint("cause", name="ux_oot_ping_cause"), key=("id",))
sa.Index("ix_oot_ping_backend", oot_ping.c.backend_key, oot_ping.c.created_at)
RATE = oot_rate.c
ACCEPTED_LATELY = Statement(
    sa.select(
        RATE.caller,
        sa.func.sum(RATE.accepted).label("count"),
        sa.func.min(RATE.second).label("oldest"),
    )
    .where(
        sa.or_(
            RATE.caller.in_(sa.bindparam("minutely", expanding=True))
            & (RATE.second > sa.bindparam("minute_ago")),
            RATE.caller.in_(sa.bindparam("hourly", expanding=True))
            & (RATE.second > sa.bindparam("hour_ago")),
        ),
        RATE.second <= sa.bindparam("latest"),
    )
    .group_by(RATE.caller)
)
PING, RUN = oot_ping.c, records["workflow_run"].c


class CommitStatus(TypedDict):
    """What is known about a backend's jobs on one upstream commit."""

    backend: str  # case folded
    upstream_repo: str
    unverified: bool
    unknown: bool  # no watched repository has this commit
    since: int  # epoch milliseconds


class _UnverifiedJob(CountedJob, JobFlags):
    """A job whose commit is not verified yet, without its failed tests."""


async def add_key(tx: Transaction, repo: str, *, note: str = "") -> str:
    """Make a key for a backend and return it: the only time it can be read."""
    identifier, secret = secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES)
    row = {
        "id": identifier,
        "repo": repo,
        "digest": _digest(secret),
        "note": note,
        "created_at": tx.now,
    }
    await tx.run(sa.insert(oot_key).values(row))
    return f"{KEY_PREFIX}{identifier}_{secret}"


async def find_key(tx: Transaction, key: str) -> KeyRow | None:
    """Return the row of a valid key, None for any other; compared in constant time."""
    identifier, _, secret = key.removeprefix(KEY_PREFIX).partition("_")
    if not key.startswith(KEY_PREFIX) or len(key) > MOST_LENGTH:
        return None
    row = await tx.fetch_first(select(KeyRow, oot_key).where(oot_key.c.id == identifier))
    right = hmac.compare_digest(row["digest"] if row else UNKNOWN_DIGEST, _digest(secret))
    return row if row and right and row["revoked_at"] is None else None


async def record_use(tx: Transaction, identifiers: Collection[str]) -> None:
    """Record that keys were used, to the minute."""
    stale = oot_key.c.used_at.is_(None) | (oot_key.c.used_at <= tx.now - USED_EVERY)
    if identifiers:
        used = oot_key.c.id.in_(sorted(identifiers))
        await tx.run(sa.update(oot_key).where(used, stale).values(used_at=tx.now))


async def list_keys(tx: Transaction) -> list[ListedKeyRow]:
    """Return every key ever made, oldest first, without digests."""
    query = select(ListedKeyRow, oot_key)
    return await tx.fetch(query.order_by(oot_key.c.created_at, oot_key.c.id))


async def revoke_key(tx: Transaction, identifier: str) -> bool:
    """Revoke a key at once; returns False when there is no such key in use."""
    valid = (oot_key.c.id == identifier, oot_key.c.revoked_at.is_(None))
    done = await tx.run(sa.update(oot_key).where(*valid).values(revoked_at=tx.now))
    return bool(done.rowcount)


async def lock_callers(tx: Transaction, callers: Collection[str]) -> None:
    """Let no other process accept reports of these callers until the transaction ends: both could exceed a limit."""
    if callers and not tx.sqlite:  # which has one writer at a time
        names = sa.func.unnest(sa.literal(sorted(callers), ARRAY(sa.Text))).column_valued("name")
        digest = sa.func.hashtext(names).label("digest")
        ordered = sa.select(digest).distinct().order_by(digest).subquery()
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(LOCK, ordered.c.digest)))


async def read_lately(
    tx: Transaction, *, minutely: Collection[str] = (), hourly: Collection[str] = ()
) -> dict[str, tuple[int, int]]:
    """Return how much of each share was accepted within its minute or hour, and the second of the oldest."""
    if not minutely and not hourly:
        return {}
    now = tx.now // 1000
    spans = {"minutely": sorted(minutely), "minute_ago": now - MINUTE}
    spans |= {"hourly": sorted(hourly), "hour_ago": now - HOUR}
    # later ones a wrong clock noted
    rows = await tx.rows(ACCEPTED_LATELY, spans | {"latest": (tx.now + JITTER) // 1000})
    return {row["caller"]: (int(row["count"]), int(row["oldest"])) for row in rows}


async def record_accepted(tx: Transaction, accepted: Mapping[str, int]) -> None:
    """Record how many reports were accepted, by caller."""
    if not accepted:
        return
    second = tx.now // 1000
    rows = [
        {"caller": caller, "second": second, "accepted": count} for caller, count in sorted(accepted.items())
    ]
    await tx.upsert(oot_rate, rows, added=("accepted",))


async def forget_old_counts(tx: Transaction) -> None:
    """Delete counts older than any window."""
    first, last = tx.now // 1000 - LONGEST_WINDOW, (tx.now + JITTER) // 1000
    await tx.run(sa.delete(oot_rate).where(~oot_rate.c.second.between(first, last)))


async def add_ping(tx: Transaction, row: PingRow) -> bool:
    """Add a ping; returns False where the same cause asked for one already."""
    added = await tx.upsert(oot_ping, [dict(row)], index=("cause",), returning=("id",))
    return bool(added.scalars())


async def get_ping(tx: Transaction, identifier: str) -> PingRow | None:
    """Return a ping by its delivery_id."""
    return await tx.fetch_first(select(PingRow, oot_ping).where(PING.id == identifier))


async def read_newest_pings(tx: Transaction, backend: str, *, limit: int) -> list[PingRow]:
    """Return the newest pings of a backend."""
    query = select(PingRow, oot_ping).where(PING.backend_key == backend.casefold())
    return await tx.fetch(query.order_by(PING.created_at.desc(), PING.id).limit(limit))


async def count_pings_since(tx: Transaction, backend: str, since: int) -> int:
    """Return how many pings were asked for of a backend since a time."""
    query = sa.select(sa.func.count()).where(PING.backend_key == backend.casefold(), PING.created_at >= since)
    count: int = (await tx.run(query)).scalar_one()
    return count


async def change_ping(tx: Transaction, identifier: str, **values: Any) -> None:
    """Record what became of a ping."""
    await tx.run(sa.update(oot_ping).where(PING.id == identifier).values(values))


async def read_first_run(tx: Transaction, backend: str, event: str, since: int) -> WorkflowRunRow | None:
    """Return the first run that such an event started in a repository since a time."""
    query = select(WorkflowRunRow, records["workflow_run"]).where(
        sa.func.lower(RUN.repo) == backend.lower(), RUN.event == event, RUN.created_at >= since
    )
    return await tx.fetch_first(query.order_by(RUN.created_at, RUN.id).limit(1))


def pings_older_than(before: int) -> sa.ColumnElement[bool]:
    """Return the condition of pings that are no longer needed."""
    return PING.created_at < before


async def read_statuses(tx: Transaction, sha: str) -> list[CommitStatus]:
    """Return the status of undispatched jobs on one upstream commit, equal ones grouped."""
    statuses: list[CommitStatus] = []
    for place in _places_of_jobs([sha]):
        statuses += await _read_statuses(tx, place)
    return statuses


async def settle_unverified(tx: Transaction, sha: str, home: str | None, *, leniently: bool) -> bool:
    """Settle some unverified jobs of a commit for a repository or none; returns whether there were any.

    It takes only some at a time, without their failed tests: a commit may have any number of jobs.
    """
    query = select(_UnverifiedJob, oot_workflow_job).where(JOB.head_sha == sha, *UNASKED, UNVERIFIED)
    query = query.order_by(JOB.job_key).limit(JOBS_PER_QUERY)
    rows = await tx.fetch(query if tx.sqlite else query.with_for_update())
    if not rows:
        return False
    tx.note_changed("oot_workflow_job", rows)
    unknown = "no_commit" if leniently else "refused"
    settled = [
        {
            "key": row["job_key"],
            "kept": _settled(row["flags"]) | ({} if home else {unknown: True}),
            "home": home or row["upstream_repo"],
            "commit": sha if home or not leniently else None,
        }
        for row in rows
    ]
    # updated_at stays: the backend reported nothing new
    update = sa.update(oot_workflow_job).where(JOB.job_key == sa.bindparam("key"))
    bound: dict[str, Any] = {name: sa.bindparam(parameter) for name, parameter in SETTLED.items()}
    await tx.run(update.values(bound), settled)
    return True


async def count_undispatched_jobs(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Count the undispatched jobs reported on these commits; commits without any are left out."""
    return await _read_each(tx, commits, sa.func.count())


async def measure_undispatched_tests(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Count the characters of failed tests that those jobs hold; commits without any are left out."""
    return await _read_each(tx, commits, jobs.LENGTH_OF_TESTS)


async def was_pushed(tx: Transaction, repo: str, sha: str) -> bool:
    """Return whether a commit was pushed to a repository itself, as the newest of a branch or tag."""
    push = records["push"].c
    query = sa.select(push.guid).where(push.after == sha, sa.func.lower(push.repo) == repo.lower())
    return await tx.row(query.limit(1)) is not None


async def read_default_branch(tx: Transaction, repo: str) -> str | None:
    """Return a repository's default branch as last recorded, None when it never was."""
    repository = records["repository"].c
    query = sa.select(repository.default_branch).where(sa.func.lower(repository.repo) == repo.lower())
    branch: str | None = (
        await tx.run(query.order_by(repository.updated_at.desc().nulls_last()).limit(1))
    ).scalar()
    return branch


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


async def _read_statuses(tx: Transaction, place: sa.ColumnElement[bool]) -> list[CommitStatus]:
    query = sa.select(
        sa.func.lower(JOB.downstream_repo).label("backend"),
        JOB.upstream_repo,
        UNVERIFIED.label("unverified"),
        (has_flag("refused") | has_flag("no_commit")).label("unknown"),
        sa.func.min(JOB.received_at).label("since"),
    )
    query = query.where(place, *UNASKED)
    return await tx.rows_as(CommitStatus, query.group_by("backend", "upstream_repo", "unverified", "unknown"))


def _settled(flags: Flags) -> Flags:
    return {name: value for name, value in flags.items() if name != "unverified"}


async def _read_each(tx: Transaction, commits: Collection[Commit], what: Any) -> dict[Commit, int]:
    if not commits:
        return {}
    backends, ids = ({commit[part] for commit in commits} for part in (0, 1))
    named = sa.func.coalesce(JOB.head_sha, JOB.delivery_id).label("named")
    query = sa.select(BACKEND_OF_HEAD.label("backend"), named, what.label("found")).where(
        BACKEND_OF_HEAD.in_(sorted(backends)), *UNASKED
    )
    totals: Counter[Commit] = Counter()
    for place in _places_of_jobs(ids):
        for row in await tx.rows(query.where(place).group_by("backend", "named")):
            totals[row["backend"], row["named"]] += int(row["found"])
    return {commit: totals[commit] for commit in commits if commit in totals}


def _places_of_jobs(ids: Collection[str]) -> tuple[sa.ColumnElement[bool], ...]:
    """Return where the jobs of some commits are; where the commit is unknown only the id is left."""
    return JOB.head_sha.in_(sorted(ids)), sa.and_(JOB.delivery_id.in_(sorted(ids)), WITHOUT_COMMIT)
