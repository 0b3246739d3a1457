"""Stored logs read again: the log of one job by its address, and searches in the logs of a commit.

Searches run a few at once, each caller a few a minute, each search for a short time.
"""

from __future__ import annotations

import contextlib
import io
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import sqlalchemy as sa
from cachetools import TTLCache

from bot.context import Resource
from bot.core.errors import Rejected
from bot.db.rows import Big, Text, select
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.fetch_file import LARGEST_FILE
from bot.evidence.collect.parse.contract import Request
from bot.evidence.collect.parser_pool import WORKSPACE, ParserPool
from bot.evidence.collect.remote_blobs import BlobMissing, copy_to
from bot.evidence.logs import rows, store_log
from bot.evidence.logs.failed_jobs import (
    JOB,
    LOG,
    LOGS,
    NAME,
    REPO,
    REPORTED,
    WORKFLOW,
    JobName,
    logs_of_runs,
    reported_for,
)
from bot.evidence.logs.parse.contract import SearchOptions, SearchResult
from bot.evidence.logs.parse.stored_log import PlainLog, StoredLog
from bot.evidence.logs.tables import LogKey, ci_log
from bot.ingest import repositories
from bot.jobs import collection
from bot.jobs import runs as job_runs
from bot.jobs.tables import branch_commit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.logs.parse.rulesets import Ruleset
    from bot.evidence.logs.parse.stored_log import LogSource

LOGS_OF_COMMIT_MOST = 2_000  # of one commit
COMMIT = branch_commit.c
AT_ONCE = 2
WINDOW, A_MINUTE = 60, 10  # seconds; searches of one address in them
ADDRESSES_MOST = 10_000
PARSER = "bot.evidence.logs.parse.parse_log:search_stored"
SEARCHED_MOST = 60  # of one search
HITS_OF_JOB, HITS = 20, 200
BUDGET = 2.0  # seconds of the child's processor time
WALL = 10.0  # seconds, after which no further log is begun, and for one log
MIB = 1024 * 1024
BYTES_MOST = 1024 * MIB  # of plain logs, after which no further one is begun
_RESULT = msgspec.msgpack.Decoder(SearchResult)
# a page of GitHub's, of any host, or one of ours
JOB_ADDRESS = re.compile(
    r"https?://[^/\s]+/([\w.-]+/[\w.-]+)/(?:actions/runs/\d{1,18}/)?job/(\d{1,18})(?:[/?#].*)?"
)


class SearchableRow(LogKey, JobName):
    """A stored log of a commit."""

    repo: Text
    conclusion: Text | None
    blob: Text
    bytes: Big  # of the plain log
    sha: Text  # of the commit, of upstream for a backend's job


@dataclass(frozen=True, kw_only=True)
class SearchedLog:
    """What was found in one log."""

    log: SearchableRow
    searched: SearchResult | None  # None: it could not be searched
    problem: str = ""


class Searches:
    """The children that search, and how often each caller has searched."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self.children = ParserPool(AT_ONCE, wall=WALL)
        self._running = 0
        self._times: TTLCache[str, deque[float]] = TTLCache(ADDRESSES_MOST, WINDOW, timer=self._now)

    @contextlib.contextmanager
    def admitted(self, address: str) -> Iterator[None]:
        """Hold one of the places for a search; raise Rejected 429 where there is none."""
        now = self._now()
        times = self._times.get(address) or deque(maxlen=A_MINUTE)
        if len(times) == A_MINUTE and times[0] > now - WINDOW:
            raise _too_many(f"{A_MINUTE} searches a minute", max(int(times[0] + WINDOW - now), 1))
        if self._running >= AT_ONCE:
            raise _too_many(f"{AT_ONCE} searches at once", 2)
        times.append(now)
        self._times[address] = times
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def close(self) -> None:
        """End the children."""
        await self.children.close()

    def _now(self) -> float:
        return self._clock.now() / 1000


SEARCHES: Resource[Searches] = Resource("log_searches", Searches)


class JobAddress(NamedTuple):
    """A job as the address of its page names it."""

    repo: str
    job_id: int


async def reporting_backends(tx: Transaction, repo: str, sha: str) -> set[str]:
    """Return the backends that reported runs for a commit, in lower case."""
    return set((await reported_for(tx, repo, sha)).repos)


async def searchable_logs(
    tx: Transaction,
    repo: str,
    sha: str,
    *,
    own: Iterable[int],
    of_backends: Iterable[int],
    run_id: int | None = None,
) -> list[SearchableRow]:
    """Return the stored logs of a commit, of these repositories and backends, in a stable order.

    With `run_id` those of that run only.
    """
    concerned = sa.and_(LOG.repository_id.in_(sorted(own)), LOG.head_sha == sha)
    reported = await logs_of_runs(tx, await reported_for(tx, repo, sha))
    if reported is not None:
        concerned = sa.or_(concerned, sa.and_(LOG.repository_id.in_(sorted(of_backends)), reported))
    if run_id is not None:
        concerned = sa.and_(concerned, LOG.run_id == run_id)
    computed = {"repo": REPO, "name": NAME, "workflow_name": WORKFLOW, "conclusion": JOB.conclusion}
    query = (
        select(SearchableRow, ci_log, sha=sa.literal(sha), **computed)
        .select_from(LOGS)
        .where(concerned, LOG.blob.is_not(None), REPO.is_not(None))
        .order_by(LOG.repository_id, LOG.job_id)
        .limit(LOGS_OF_COMMIT_MOST)
    )
    return await tx.fetch(query)


async def commits_of_branch(
    tx: Transaction, ids: Collection[int], branch: str, *, since: int, limit: int, start: str | None
) -> list[str]:
    """Return the newest commits of a branch since a time, from `start` back."""
    mine = sa.and_(COMMIT.repository_id.in_(sorted(ids)), COMMIT.branch == branch, sa.not_(COMMIT.gone))
    query = sa.select(COMMIT.sha).where(mine, COMMIT.at >= since)
    if start is not None:
        at = sa.select(COMMIT.at).where(mine, COMMIT.sha == start).limit(1).scalar_subquery()
        query = query.where(sa.or_(COMMIT.at < at, sa.and_(COMMIT.at == at, COMMIT.sha >= start)))
    return list((await tx.run(query.order_by(COMMIT.at.desc(), COMMIT.sha).limit(limit))).scalars())


async def commits_with_logs(
    tx: Transaction, repo: str, ids: Collection[int], shas: Collection[str]
) -> set[str]:
    """Return those of some commits that may have stored logs."""
    own = sa.select(LOG.head_sha).where(
        LOG.repository_id.in_(sorted(ids)), LOG.head_sha.in_(sorted(shas)), LOG.blob.is_not(None)
    )
    reported = sa.select(REPORTED.head_sha).where(
        sa.func.lower(REPORTED.upstream_repo) == repo.lower(), REPORTED.head_sha.in_(sorted(shas))
    )
    return set((await tx.run(own.union(reported))).scalars())


async def search_logs(context: Context, logs: Sequence[SearchableRow], pattern: str) -> list[SearchedLog]:
    """Search logs in order, as many as the limits allow but at least one; raise Rejected for a wrong pattern."""
    searched: list[SearchedLog] = []
    used, hits, size, began = 0.0, 0, 0, time.monotonic()
    async with context.resource(WORKSPACE).folder() as folder:
        for log in logs[:SEARCHED_MOST]:
            result = await _search_log(context, log, SearchOptions(pattern=pattern, most=HITS_OF_JOB), folder)
            searched.append(result)
            size += log["bytes"]
            if result.searched:
                used, hits = used + result.searched.seconds, hits + len(result.searched.hits)
            if used >= BUDGET or size >= BYTES_MOST or hits > HITS - HITS_OF_JOB:
                break
            if time.monotonic() - began >= WALL:
                break
    return searched


async def _search_log(
    context: Context, log: SearchableRow, options: SearchOptions, folder: Path
) -> SearchedLog:
    path, answer = folder / "log", folder / "answer"
    try:
        await copy_to(context.resource(BLOBS), log["blob"], path)
        reply = await context.resource(SEARCHES).children.parse(
            Request(
                parser=PARSER,
                path=str(path.absolute()),
                blob=str((folder / "blob").absolute()),
                answer=str(answer.absolute()),
                options=msgspec.to_builtins(options),
                most_written=MIB,
            )
        )
        if reply.state == "refused":
            raise Rejected(400, "invalid_parameter", reply.reason)
        if reply.state != "parsed":
            return SearchedLog(log=log, searched=None, problem=reply.reason)
        return SearchedLog(log=log, searched=_RESULT.decode(answer.read_bytes()))
    except BlobMissing:
        return SearchedLog(log=log, searched=None, problem="the log has been deleted")
    finally:
        path.unlink(missing_ok=True)


def _too_many(limit: str, wait: int) -> Rejected:
    detail = f"{limit} are answered: come back in {wait} s"
    return Rejected(429, "rate_limited", detail, headers={"Retry-After": str(wait)})


def parse_address(text: str) -> JobAddress | None:
    """Parse the address of a job's page, or return None."""
    match = JOB_ADDRESS.fullmatch(text)
    return JobAddress(match[1], int(match[2])) if match else None


async def read_job_log(context: Context, address: JobAddress) -> tuple[LogSource, Ruleset]:
    """Read a job's log and the rules in force for it; raise GitHubRefused where the App cannot read it."""
    async with context.store.read() as tx:
        owners = await repositories.read_ids(tx, address.repo)
        job = await job_runs.find_job(tx, owners, address.job_id)
        row = await rows.find_log(tx, job["repository_id"], job["id"]) if job else None
        ruleset = await store_log.rules_in_force(tx, context.settings, address.repo)
    chosen = ruleset.applied_to(address.repo, job["workflow_name"] if job else None)
    if row and row["blob"]:
        try:
            return _stored_log(await context.resource(BLOBS).get(row["blob"])), chosen
        except BlobMissing:
            pass  # deleted by now: GitHub may still have it
    return await _fetch_log(context, address), chosen


def _stored_log(content: bytes) -> StoredLog:
    return StoredLog(lambda start, length: content[start : start + length], len(content))


async def _fetch_log(context: Context, address: JobAddress) -> PlainLog:
    client = context.app_for(address.repo).client(address.repo, actions="read")
    await collection.spend_call(context, address.repo)
    location = await client.location(client.path(f"actions/jobs/{address.job_id}/logs"))
    workspace = context.resource(WORKSPACE)
    async with workspace.folder() as folder:
        await workspace.downloads.fetch(location, folder / "log", most=LARGEST_FILE)
        return PlainLog(io.BytesIO((folder / "log").read_bytes()))
