"""What other capabilities say of backends' failed jobs and tests, put into what is shown of a pull request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot.core.links import web_url
from bot.oot.verdict.failed_jobs import list_judged, list_passed, list_reported
from bot.oot.verdict.failure_list import list_failures
from bot.oot.verdict.job_histories import settle_histories
from bot.web import blocks
from bot.web.failures import Failures, FailuresSubject, read_failures
from bot.web.subjects import BackendsSubject, HeadSubject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend, Job, Pull
    from bot.web.blocks import JobLine


async def add_job_lines(tx: Transaction, context: Context, state: PullState) -> PullState:
    """Return the state with lines on the failed jobs and tests of every judged head."""
    pulls = [pull for head in state.heads for pull in (head.view, head.view.previous) if pull]
    lines = await blocks.job_lines(
        context.features, tx, BackendsSubject(runs=_failed_runs(pulls), url=context.settings.url)
    )
    return await _each(state, lambda pull: _with_sections(tx, context, pull, lines))


async def add_failures(tx: Transaction, context: Context, state: PullState) -> PullState:
    """Return the state with the list of failures of every judged head, and its failing jobs compared by that list.

    Names that may not be shown are to be hidden before.
    """
    base_ref = state.base_ref
    return await _each(state, lambda pull: _with_failures(tx, context, pull, base_ref))


async def _each(state: PullState, change: Callable[[Pull], Awaitable[Pull]]) -> PullState:
    heads = []
    for head in state.heads:
        view = await change(head.view)
        if view.previous:
            view = replace(view, previous=await change(view.previous))
        heads.append(replace(head, view=view))
    return replace(state, heads=tuple(heads))


def _failed_runs(pulls: Iterable[Pull]) -> dict[str, frozenset[tuple[str, int]]]:
    found: dict[str, set[tuple[str, int]]] = {}
    for pull in pulls:
        for backend in pull.backends:
            for job in backend.failing:
                found.setdefault(backend.repo.lower(), set()).add((job.run_id, job.run_attempt))
    return {backend: frozenset(runs) for backend, runs in found.items()}


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
        found = [line for line in lines.get(key, ()) if (line.run_id, line.run_attempt) in runs]
        backends.append(replace(_with_lines(backend, found), thin=tests.thin.get(key, "")))
    return replace(pull, backends=tuple(backends), tests=tests)


async def _with_failures(tx: Transaction, context: Context, pull: Pull, base_ref: str | None) -> Pull:
    """Return a head with what fails on its backends; upstream's own failures are for its own pages."""
    failed = list_reported(pull.backends)
    if not failed:
        return pull
    found = Failures()
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
        found = await read_failures(context.features, tx, subject)
    listed = list_failures(
        failed, found, passed=list_passed(pull.backends), judged=list_judged(pull.backends)
    )
    shown = _with_addresses(listed.on_any({one.repo.lower() for one in pull.backends}), context.settings.url)
    return replace(pull, backends=settle_histories(pull.backends, shown), failures=shown)


def _with_addresses(failures: FailureList, site: str) -> FailureList:
    """Return the list with addresses of pages on this bot as others see them."""
    return replace(
        failures,
        first=tuple(replace(one, url=_address(one.url, site)) for one in failures.first),
        aside=tuple(replace(one, url=_address(one.url, site)) for one in failures.aside),
    )


def _address(url: str | None, site: str) -> str | None:
    return f"{site}{url}" if url and url.startswith("/") else url


def _with_lines(backend: Backend, found: list[JobLine]) -> Backend:
    if not found:
        return backend
    jobs = tuple(
        replace(job, lines=tuple(line for line in found if _is_about(line, job))) if job.red else job
        for job in backend.jobs
    )
    rest = [line for line in found if not any(_is_about(line, job) for job in backend.jobs)]
    return replace(backend, jobs=jobs, lines=tuple(rest))


def _is_about(line: JobLine, job: Job) -> bool:
    return (line.run_id, line.run_attempt, line.job) == (job.run_id, job.run_attempt, job.name)
