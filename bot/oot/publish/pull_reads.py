"""Reads before publishing: what GitHub and other capabilities add to the state of a pull request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused, RetryLater
from bot.core.escaping import web_url
from bot.core.json_fields import Kind, read_member
from bot.ingest import record_store
from bot.oot.dispatch import commits
from bot.oot.dispatch.commits import HeadFiles
from bot.oot.publish import rows
from bot.oot.verdict import pull_state
from bot.oot.verdict.comparison import MergeBase, read_merge_bases, store_merge_base
from bot.oot.verdict.failure import list_judged, list_passed, list_reported
from bot.oot.verdict.failure_list import list_failures, settle_histories
from bot.oot.verdict.pull_state import hide_private_names, in_doubt
from bot.web import blocks
from bot.web.blocks import BackendsSubject, HeadSubject
from bot.web.failures import Failures, FailuresSubject, read_failures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend, Job, Pull
    from bot.web.blocks import JobLine

log = structlog.get_logger("bot.oot.publish.pull_reads")


async def read_current(context: Context, repo: str, number: int) -> PullState:
    """Read and judge a pull request's newest head, and older ones where it has no report yet.

    The comment then shows the verdict on an older head.
    """
    state = await read_state(context, repo, number, newest=1)
    if len(state.heads) == 1 or state.current is None or state.current.view.reported:
        return state
    return await read_state(context, repo, number)


async def read_state(
    context: Context, repo: str, number: int, *, newest: int = pull_state.MOST_HEADS
) -> PullState:
    """Read and judge the newest heads of a pull request, and older ones that have an unfinished check run.

    With a smaller `newest`, only those. GitHub is asked for labels when our record may be outdated.
    """
    async with context.store.read() as tx:
        record = await record_store.read_pull(tx, repo, number)
        doubtful = in_doubt(record, await record_store.read_label_events(tx, repo, number))
        if not (doubtful and context.settings.is_upstream(repo)):
            return await _state(tx, context, repo, number, newest=newest)
    labels = await _labels(context, repo, number, since=record["created_at"] if record else None)
    async with context.store.read() as tx:
        return await _state(tx, context, repo, number, newest=newest, labels=labels)


async def read_merge_base(context: Context, state: PullState) -> bool:
    """Ask once for the newest head's merge base if it has failures to compare; returns whether it is new."""
    head = state.current
    if head is None or not any(backend.failing for backend in head.view.backends):
        return False
    sha, base_ref = head.view.head_sha, state.base_ref or ""
    dispatched = next((facts.dispatch for facts in head.facts.values() if facts.dispatch["base_sha"]), None)
    async with context.store.read() as tx:
        known = sha in await read_merge_bases(tx, state.repo, [sha], base_ref=base_ref)
    if known or dispatched is None:
        return False
    base = dispatched["base_sha"]
    try:
        merge_base = await _merge_base(context, state, base, sha, since=dispatched["created_at"])
    except RetryLater as error:
        log.info("the merge base is asked for later", repo=state.repo, pull=state.number, reason=str(error))
        return False
    async with context.store.transaction() as tx:
        await store_merge_base(tx, state.repo, sha, merge_base, base_ref=base_ref)
    return merge_base.sha is not None


async def read_changed_files(context: Context, state: PullState) -> frozenset[str]:
    """Return the files that the newest head changes; none if no failed test has a line, or GitHub refuses.

    Only failed tests in these files can be annotated. GitHub is asked once per head.
    """
    head = state.current
    if head is None or not _any_line(head.view):
        return frozenset()
    opened_at = state.record["created_at"] if state.record else None
    listed = HeadFiles(state.repo, state.number, head.view.head_sha, state.base_ref or "")
    try:
        paths, _ = await commits.read_changed_files(context, listed, since=opened_at, certain=False)
    except (GitHubRefused, RetryLater) as error:
        log.warning("changed files cannot be read", repo=state.repo, pull=state.number, reason=str(error))
        return frozenset()
    return frozenset(paths)


async def add_job_lines(tx: Transaction, context: Context, state: PullState) -> PullState:
    """Add lines on failed jobs and tests to every judged head."""
    pulls = [pull for head in state.heads for pull in (head.view, head.view.previous) if pull]
    lines = await blocks.job_lines(
        context.features, tx, BackendsSubject(runs=_failed_runs(pulls), url=context.settings.url)
    )
    return await _each(state, lambda pull: _with_sections(tx, context, pull, lines))


async def add_failures(tx: Transaction, context: Context, state: PullState) -> PullState:
    """Add the list of failures to every judged head, and compare its failing jobs by that list.

    Private names must be hidden before.
    """
    base_ref = state.base_ref
    return await _each(state, lambda pull: _with_failures(tx, context, pull, base_ref))


async def _state(
    tx: Transaction,
    context: Context,
    repo: str,
    number: int,
    *,
    newest: int,
    labels: frozenset[str] | None = None,
) -> PullState:
    all_maintained = newest >= pull_state.MOST_HEADS
    state = await pull_state.read_pull(
        tx,
        context.settings,
        repo,
        number,
        labels=labels,
        newest=newest,
        also=await rows.unfinished_heads(tx, repo, number) if all_maintained else (),
        compared=newest,
    )
    full = await add_job_lines(tx, context, state)
    public = await hide_private_names(tx, context.settings, full)
    return await add_failures(tx, context, public)


async def _labels(context: Context, repo: str, number: int, *, since: int | None) -> frozenset[str] | None:
    """Return the labels GitHub shows now; None if it refuses, so that our record stands."""
    client = context.github.caching(repo, since=since, pull_requests="read")
    url = client.path(f"issues/{number}/labels{{?per_page}}")
    try:
        return frozenset([label["name"] async for label in client.getiter(url, {"per_page": "100"})])
    except GitHubRefused as error:
        log.warning("labels cannot be read", repo=repo, pull=number, reason=str(error))
        return None


async def _merge_base(
    context: Context, state: PullState, base: str | None, head: str, *, since: int
) -> MergeBase:
    client = context.github.client(state.repo, since=since, contents="read")
    url = client.path("compare/{base}...{head}{?page,per_page}")  # the first page alone lists files
    try:
        compared = await client.getitem(url, {"base": base, "head": head, "page": "2", "per_page": "1"})
    except GitHubRefused as error:
        log.warning("no merge base", repo=state.repo, pull=state.number, reason=str(error))
        return MergeBase(None)
    return MergeBase(
        str(compared["merge_base_commit"]["sha"]),
        read_member(compared, ("merge_base_commit", "commit", "committer", "date"), Kind.TIME),
    )


def _any_line(pull: Pull) -> bool:
    reported = (test for backend in pull.backends for job in backend.failing for test in job.failed_tests)
    return any(test.file for test in reported) or bool(pull.tests and pull.tests.marks)


async def _each(state: PullState, change: Callable[[Pull], Awaitable[Pull]]) -> PullState:
    heads = []
    for head in state.heads:
        view = await change(head.view)
        if view.previous:
            view = replace(view, previous=await change(view.previous))
        heads.append(replace(head, view=view))
    return replace(state, heads=tuple(heads))


def _failed_runs(pulls: Iterable[Pull]) -> dict[str, frozenset[tuple[str, int]]]:
    failed: dict[str, set[tuple[str, int]]] = {}
    for pull in pulls:
        for backend in pull.backends:
            for job in backend.failing:
                failed.setdefault(backend.repo.lower(), set()).add((job.run_id, job.run_attempt))
    return {backend: frozenset(runs) for backend, runs in failed.items()}


async def _with_sections(
    tx: Transaction, context: Context, pull: Pull, lines: Mapping[str, list[JobLine]]
) -> Pull:
    failing = _failed_runs([pull])
    subject = HeadSubject(
        repo=pull.repo,
        head_sha=pull.head_sha,
        labels={backend.repo.casefold(): backend.label for backend in pull.backends},
        failing=failing,
        url=context.settings.url,
        settings=context.settings,
    )
    pull = replace(pull, remarks=await blocks.head_remarks(context.features, tx, subject))
    if not any(backend.jobs for backend in pull.backends):
        return pull
    tests = await blocks.head_tests(context.features, tx, subject)
    backends = []
    for backend in pull.backends:
        key = backend.repo.lower()
        runs = failing.get(key, ())
        lines_of_runs = [line for line in lines.get(key, ()) if (line.run_id, line.run_attempt) in runs]
        backends.append(replace(_with_lines(backend, lines_of_runs), thin=tests.thin.get(key, "")))
    return replace(pull, backends=tuple(backends), tests=tests)


async def _with_failures(tx: Transaction, context: Context, pull: Pull, base_ref: str | None) -> Pull:
    """Add to a head what fails on its backends; upstream's own failures are left to its pages."""
    failed = list_reported(pull.backends)
    if not failed:
        return pull
    known = Failures()
    if any(backend.failing for backend in pull.backends):
        settings = context.settings
        subject = FailuresSubject(
            repo=pull.repo,
            sha=pull.head_sha,
            base_ref=base_ref,
            of_pull=True,
            upstream_jobs={},
            github=web_url(settings.github_api_url),
            settings=settings,
            own=False,
        )
        known = await read_failures(context.features, tx, subject)
    listed = list_failures(
        failed, known, passed=list_passed(pull.backends), judged=list_judged(pull.backends)
    )
    shown = _with_addresses(
        listed.on_any({backend.repo.lower() for backend in pull.backends}), context.settings.url
    )
    return replace(pull, backends=settle_histories(pull.backends, shown), failures=shown)


def _with_addresses(failures: FailureList, site: str) -> FailureList:
    """Complete the addresses of this bot's pages in a list."""
    return replace(
        failures,
        first=tuple(replace(failure, url=_address(failure.url, site)) for failure in failures.first),
        aside=tuple(replace(failure, url=_address(failure.url, site)) for failure in failures.aside),
    )


def _address(url: str | None, site: str) -> str | None:
    return f"{site}{url}" if url and url.startswith("/") else url


def _with_lines(backend: Backend, lines: list[JobLine]) -> Backend:
    if not lines:
        return backend
    jobs = tuple(
        replace(job, lines=tuple(line for line in lines if _is_about(line, job))) if job.red else job
        for job in backend.jobs
    )
    rest = [line for line in lines if not any(_is_about(line, job) for job in backend.jobs)]
    return replace(backend, jobs=jobs, lines=tuple(rest))


def _is_about(line: JobLine, job: Job) -> bool:
    return (line.run_id, line.run_attempt, line.job) == (job.run_id, job.run_attempt, job.name)
