"""Flaky and broken tests: how trusted runs decide a test's state, and the task test_states that keeps it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
import structlog

from bot.core.errors import GiveUp, Rejected
from bot.db.rows import select
from bot.db.store import LOCK_TIMEOUT
from bot.evidence.collect import fetches
from bot.evidence.collect.fetches import object_key
from bot.evidence.collect.tables import ci_artifact
from bot.evidence.tests import result_rows, rows
from bot.evidence.tests.days import days_of_tests, request_days
from bot.evidence.tests.known_tests import PAUSE, in_batches
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import FAILING, PASSING, RULES
from bot.evidence.tests.rows import DAY, JOB, JOBS, tested_commit
from bot.evidence.tests.tables import (
    BASELINE,
    StateRow,
    TestRow,
    test,
    test_class,
    test_env,
    test_failure,
    test_job,
    test_part,
    test_state,
    test_summary,
)
from bot.ingest import repositories
from bot.ingest.tables import records
from bot.web import addresses
from bot.web.access import CONTEXT
from bot.web.blocks import ADMINISTRATOR, FormDone

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aiohttp import web

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.tests.days import Counts
    from bot.queue.tasks import Task

WINDOW = 7 * DAY
FLAKY_JOBS = 2  # in the window
RATE_RUNS = 20  # in the window, before a failure rate says anything
RATE_FAILURES = 3  # with a pass between each
RATE_MOST = 0.5
BROKEN_RUNS = 3  # the newest ones
QUIET_TIME = 14 * DAY  # without an event, until a flaky test is healthy again
QUIET_RUNS = 100
SAMPLES = 5  # jobs named as evidence
TASK = "test_states"
TOGETHER, AT_LATEST = 60.0, 600.0  # seconds in which further jobs are awaited
AGAIN = 6 * 3600 * 1000  # milliseconds until a test that is not healthy is looked at without a failure
TESTS_MOST = 1_000  # looked at in one run
JOBS_MOST = 300  # newest ones that ran a suite
BLOCKS = 50  # decoded at a time
BY_US = "bot"
STATE, FAILURE, SUMMARY = test_state.c, test_failure.c, test_summary.c
DISTRUSTED_MOST = 200  # jobs at a time
OF_PULLS = sa.and_(JOB.trusted, JOB.backend.is_not(None), JOB.pr_number.is_not(None))
READ_MOST = 100  # artifacts at a time: each is a call to GitHub
PART, ARTIFACT, RUN = test_part.c, ci_artifact.c, records["workflow_run"].c
NAMED_MOST = 20  # tests of one name
SEPARATOR = "::"
log = structlog.get_logger("bot.evidence.tests.states")


class State(StrEnum):
    """The state of a test."""

    HEALTHY = "healthy"
    FLAKY = "flaky"
    BROKEN = "broken"
    QUARANTINED = "quarantined"  # people said so, and only they take it back


class Observation(NamedTuple):
    """How a test did in one trusted job."""

    at: int
    job_id: int
    sha: str
    job_family: str
    failed: bool
    flaky: bool = False  # within the job


class JudgedState(NamedTuple):
    """A state, since when, and why."""

    state: State
    since: int
    evidence: dict[str, Any]


class NamedTest(NamedTuple):
    """A test with its daily counts in trusted runs by group of environments, and its states."""

    row: TestRow
    days: dict[int, dict[str, Counts]]  # days since 1970
    states: list[StateRow]


def evaluate(seen: Sequence[Observation], before: JudgedState | None, *, now: int) -> JudgedState:
    """Evaluate the state of a test from its observations, given in any order."""
    if before and before.state is State.QUARANTINED:
        return before
    reset = before.evidence.get("reset", 0) if before else 0
    ordered = sorted(
        (observation for observation in seen if reset < observation.at <= now),
        key=lambda observation: (observation.at, observation.job_id),
    )
    recent = [observation for observation in ordered if observation.at > now - WINDOW]
    unhealthy = _broken(ordered) or _flaky_jobs(recent) or _rate(recent)
    kept = {"reset": reset} if reset else {}
    if unhealthy is None:
        if before and before.state is State.FLAKY and not _is_quiet(ordered, now):
            return before
        if before and before.state is State.BROKEN and not _is_recovered(ordered):
            return before
        since = before.since if before and before.state is State.HEALTHY else now
        return JudgedState(State.HEALTHY, since if before else _first(ordered, now), kept)
    if before and before.state is unhealthy.state:
        return JudgedState(unhealthy.state, min(before.since, unhealthy.since), kept | unhealthy.evidence)
    return JudgedState(unhealthy.state, unhealthy.since, kept | unhealthy.evidence)


def reset_state(at: int) -> JudgedState:
    """Return the state of a test that a person has declared recovered."""
    return JudgedState(State.HEALTHY, at, {"reset": at})


def request_states(tx: Transaction, repository_id: int) -> None:
    """Request an evaluation of the tests that failed in a repository's trusted runs."""
    tx.enqueue(TASK, str(repository_id), delay=TOGETHER, max_wait=AT_LATEST)


async def evaluate_states(context: Context, task: Task) -> None:
    """Evaluate the tests whose state may have changed."""
    if not task.key:
        async with context.store.transaction() as tx:
            await distrust_pulls(tx)
            await request_reading(tx)
    async with context.store.read() as tx:
        if task.key:
            by_repository = {_repository(task.key): await _failing(tx, _repository(task.key))}
        else:
            by_repository = await _unhealthy(tx)
    for repository_id, test_ids in by_repository.items():
        await _evaluate(context, repository_id, test_ids)


async def states_of_tests(tx: Transaction, test_ids: Collection[int]) -> list[StateRow]:
    """Return the states of tests."""
    query = select(StateRow, test_state).where(STATE.test_id.in_(sorted(test_ids)))
    return await tx.fetch(query.order_by(STATE.test_id, STATE.env_group))


async def store_states(tx: Transaction, new: Sequence[StateRow]) -> None:
    """Store states, replacing the previous ones."""
    if new:
        await tx.upsert(test_state, new, replaced=[column.name for column in STATE if not column.primary_key])
        tx.note_changed("test_state", new)


async def reset_test(tx: Transaction, repository_id: int, test_id: int, *, by: str) -> int:
    """Declare a test recovered in all environments; return the number in which it was not healthy."""
    before = [row for row in await states_of_tests(tx, [test_id]) if row["repository_id"] == repository_id]
    healthy = reset_state(tx.now)
    values: Any = {
        "state": healthy.state.value, "since": healthy.since, "evidence": healthy.evidence, "by": by, "at": tx.now,
    }  # fmt: skip
    changed: list[Any] = [{**row, **values} for row in before]
    await store_states(tx, changed)
    return sum(row["state"] != State.HEALTHY for row in before)


async def distrust_pulls(tx: Transaction) -> None:
    """Take backends' results of pull requests out of baselines, daily sums and verdicts."""
    jobs = await tx.fetch(JOBS.where(OF_PULLS).order_by(JOB.at).limit(DISTRUSTED_MOST))
    if not jobs:
        return
    generations = [job["generation"] for job in jobs]
    for table in (test_job, test_failure):
        await tx.run(sa.update(table).where(table.c.generation.in_(generations)).values(trusted=False))
    for repository_id in sorted({job["repository_id"] for job in jobs}):
        request_days(tx, repository_id)
    rows.request_verdicts(tx, sorted({tested_commit(job) for job in jobs}))


async def request_reading(tx: Transaction) -> None:
    """Request that artifacts read by older rules be fetched and read again, once each."""
    of_run = sa.and_(
        RUN.repository_id == PART.repository_id, RUN.id == PART.run_id, RUN.run_attempt == PART.run_attempt
    )
    same = sa.and_(ARTIFACT.repository_id == PART.repository_id, ARTIFACT.id == PART.object_id)
    query = (
        sa.select(PART.repository_id, PART.object_id, RUN.repo)
        .select_from(test_part.join(ci_artifact, same).join(records["workflow_run"], of_run))
        .where(
            PART.rules < RULES,
            PART.kind == "junit",
            ~ARTIFACT.expired,
            sa.func.coalesce(ARTIFACT.expires_at, tx.now + 1) > tx.now,
        )
        .order_by(PART.received_at.desc(), PART.object_id)
        .limit(READ_MOST)
    )
    by_repository: dict[int, list[int]] = defaultdict(list)
    for repository_id, object_id, repo in (await tx.run(query)).all():
        by_repository[repository_id].append(object_id)
        tx.enqueue("collect", object_key(repo, object_id))
    for repository_id, ids in by_repository.items():
        await fetches.retry_fetches(tx, repository_id, "artifact", ids)
        read = (PART.repository_id == repository_id, PART.object_id.in_(ids))
        await tx.run(sa.update(test_part).where(*read).values(rules=RULES))


async def find_tests_by_name(tx: Transaction, repo: str, name: str) -> list[TestRow]:
    """Find a repository's tests by name, suite::name or file::suite::name, the newest first."""
    *place, last = name.split(SEPARATOR, 2)
    wanted = [test.c.repository_id.in_(sorted(await repositories.read_ids(tx, repo))), test.c.name == last]
    if place:
        wanted.append(test_class.c.suite == place[-1])
    if len(place) > 1:
        wanted.append(test_class.c.file == place[0])
    query = rows.TESTS.where(*wanted).order_by(test.c.last_at.desc(), test.c.digest).limit(NAMED_MOST)
    return await tx.fetch(query)


async def with_history(tx: Transaction, tests: list[TestRow], *, days: int) -> list[NamedTest]:
    """Return tests with the counts of their last days."""
    today = tx.now // DAY
    states = await states_of_tests(tx, {row["id"] for row in tests})
    named = []
    for row in tests:
        counted = await days_of_tests(
            tx, row["repository_id"], [row["id"]], since=today - days + 1, until=today
        )
        mine = [state for state in states if state["test_id"] == row["id"]]
        named.append(NamedTest(row, counted.get(row["id"], {}), mine))
    return named


async def reset_by_administrator(request: web.Request, _fields: Mapping[str, str]) -> FormDone:
    """Declare a test recovered in all environments, and show its page again."""
    repo, digest = addresses.repo(request), request.match_info["digest"]
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        row = await result_rows.test_by_digest(tx, await repositories.read_ids(tx, repo), digest)
        if row is None:
            raise Rejected(404, "unknown_test", f"no test of that id is known in {repo}")
        await reset_test(tx, row["repository_id"], row["id"], by=ADMINISTRATOR)
    log.info("test reset", repo=repo, test=digest, by=ADMINISTRATOR)
    return FormDone(path=f"/{repo}/test/{digest}")


def _first(ordered: Sequence[Observation], now: int) -> int:
    return ordered[0].at if ordered else now


def _broken(ordered: Sequence[Observation]) -> JudgedState | None:
    """Return BROKEN if all of the newest runs failed."""
    failing = 0
    for observation in reversed(ordered):
        if not observation.failed:
            break
        failing += 1
    if failing < BROKEN_RUNS:
        return None
    run = ordered[-failing:]
    return JudgedState(State.BROKEN, run[0].at, {"failed": failing, "jobs": _jobs(run)})


def _is_recovered(ordered: Sequence[Observation]) -> bool:
    newest = ordered[-BROKEN_RUNS:]
    return len(newest) == BROKEN_RUNS and not any(observation.failed for observation in newest)


def _flaky_jobs(recent: Sequence[Observation]) -> JudgedState | None:
    """Return FLAKY if the test twice both passed and failed, in one job or in a family's jobs on one commit."""
    events = _events(recent)
    if len({event.job_id for event in events}) < FLAKY_JOBS:
        return None
    return JudgedState(
        State.FLAKY, events[0].at, {"flaky": len(events), "runs": len(recent), "jobs": _jobs(events)}
    )


def _events(seen: Sequence[Observation]) -> list[Observation]:
    """Return the observations in which the test was flaky, or failed while another job on the commit passed."""
    outcomes: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for observation in seen:
        outcomes[observation.sha, observation.job_family].add(observation.failed)
    return [
        observation
        for observation in seen
        if observation.flaky
        or (observation.failed and len(outcomes[observation.sha, observation.job_family]) > 1)
    ]


def _rate(recent: Sequence[Observation]) -> JudgedState | None:
    """Return FLAKY if the test fails now and then."""
    failed = [observation for observation in recent if observation.failed]
    separate = sum(
        observation.failed and (index == 0 or not recent[index - 1].failed)
        for index, observation in enumerate(recent)
    )
    enough = len(recent) >= RATE_RUNS and separate >= RATE_FAILURES
    if not enough or len(failed) >= RATE_MOST * len(recent):
        return None
    evidence = {"failed": len(failed), "runs": len(recent), "jobs": _jobs(failed)}
    return JudgedState(State.FLAKY, failed[0].at, evidence)


def _is_quiet(ordered: Sequence[Observation], now: int) -> bool:
    """Whether the test has behaved for long enough."""
    events = {*_events(ordered), *(observation for observation in ordered if observation.failed)}
    if not events:
        return True
    newest = max(event.at for event in events)
    return newest <= now - QUIET_TIME or sum(observation.at > newest for observation in ordered) >= QUIET_RUNS


def _jobs(seen: Sequence[Observation]) -> list[int]:
    return [observation.job_id for observation in seen[-SAMPLES:]]


def _repository(key: str) -> int:
    if not key.lstrip("-").isdigit():
        raise GiveUp(f"{key!r} is not the id of a repository")
    return int(key)


async def _failing(tx: Transaction, repository_id: int) -> list[int]:
    """Return the tests that failed in trusted runs since they were last evaluated."""
    newest = sa.func.max(FAILURE.generation)
    looked = sa.select(sa.func.max(STATE.at)).where(
        STATE.repository_id == repository_id, STATE.test_id == FAILURE.test_id
    )
    query = (
        sa.select(FAILURE.test_id)
        .where(FAILURE.repository_id == repository_id, FAILURE.trusted, FAILURE.at > tx.now - WINDOW)
        .group_by(FAILURE.test_id)
        .having(newest > sa.func.coalesce(looked.scalar_subquery(), 0) * rows.GENERATIONS)
        .order_by(newest.desc())
    )
    return list((await tx.run(query.limit(TESTS_MOST))).scalars())


async def _unhealthy(tx: Transaction) -> dict[int, list[int]]:
    """Return the unhealthy tests that have not been evaluated for long, by repository."""
    waiting = (STATE.state.in_([State.FLAKY.value, State.BROKEN.value]), STATE.at <= tx.now - AGAIN)
    query = sa.select(STATE.repository_id, STATE.test_id).where(*waiting).order_by(STATE.at)
    by_repository: dict[int, list[int]] = defaultdict(list)
    for row in await tx.run(query.limit(TESTS_MOST)):
        by_repository[row.repository_id].append(row.test_id)
    return by_repository


async def _evaluate(context: Context, repository_id: int, test_ids: Sequence[int]) -> None:
    by_class: dict[int, list[int]] = defaultdict(list)
    async with context.store.read() as tx:
        for some in in_batches(sorted(set(test_ids))):
            classes = await tx.run(sa.select(test.c.id, test.c.class_id).where(test.c.id.in_(some)))
            for row in classes:
                by_class[row.class_id].append(row.id)
    for class_id, tests in by_class.items():
        async with context.store.read() as tx:
            now = tx.now
            seen = await _seen(tx, class_id, tests, since=now - QUIET_TIME)
            before = await states_of_tests(tx, tests)
        known = {(row["test_id"], row["env_group"]): row for row in before}
        new = [
            _row(repository_id, key, seen.get(key, []), known.get(key), now)
            for key in sorted({*seen, *known})
        ]
        async with context.store.transaction() as tx:
            for some_rows in in_batches(new):
                await store_states(tx, some_rows)
        await context.clock.sleep(PAUSE)


def _row(
    repository_id: int, key: tuple[int, str], seen: Sequence[Observation], known: StateRow | None, now: int
) -> StateRow:
    before = JudgedState(State(known["state"]), known["since"], known["evidence"]) if known else None
    judged = evaluate(seen, before, now=now)
    same = known is not None and known["state"] == judged.state
    return {
        "repository_id": repository_id,
        "test_id": key[0],
        "env_group": key[1],
        "state": judged.state.value,
        "since": judged.since,
        "evidence": judged.evidence,
        "issue": known["issue"] if known else None,
        "by": known["by"] if known and same else BY_US,
        "at": now,
    }


async def _seen(
    tx: Transaction, class_id: int, test_ids: Collection[int], *, since: int
) -> dict[tuple[int, str], list[Observation]]:
    """Read the observations of a suite's tests in the newest trusted jobs, by test and environment."""
    query = (
        sa.select(JOB.generation, test_env.c.env_group)
        .select_from(
            test_summary.join(test_job, JOB.generation == SUMMARY.generation).join(
                test_env, test_env.c.id == JOB.env_id
            )
        )
        .where(SUMMARY.class_id == class_id, SUMMARY.at > since, BASELINE)
        .order_by(SUMMARY.at.desc())
    )
    ran = {row.generation: row.env_group for row in await tx.run(query.limit(JOBS_MOST))}
    observations: dict[tuple[int, str], list[Observation]] = defaultdict(list)
    for some in in_batches(sorted(ran), BLOCKS):
        jobs = {job["generation"]: job for job in await rows.jobs_by_generation(tx, some)}
        blocks = await rows.blocks_of_jobs(tx, some)
        for generation, said in (await asyncio.to_thread(_said, blocks, test_ids)).items():
            job = jobs[generation]
            for test_id, cases in said.items():
                observations[test_id, ran[generation]].append(
                    Observation(
                        at=job["at"],
                        job_id=job["job_id"],
                        sha=tested_commit(job),
                        job_family=job["family"],
                        failed=any(case.code in FAILING for case in cases),
                        flaky=any(case.is_flaky for case in cases),
                    )
                )
    return observations


def _said(
    blocks: Mapping[int, bytes], test_ids: Collection[int]
) -> dict[int, dict[int, list[block.BlockCase]]]:
    """Return the cases of tests that ran, by job."""
    said_by_job: dict[int, dict[int, list[block.BlockCase]]] = {}
    for generation, content in blocks.items():
        decoded = block.decode(content)
        cases = ((test_id, decoded.find(test_id)) for test_id in test_ids)
        said_by_job[generation] = {
            test_id: said for test_id, said in cases if any(case.code in PASSING | FAILING for case in said)
        }
    return said_by_job
