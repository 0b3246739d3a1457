"""What other capabilities say of backends' failed jobs and tests, put into what is shown of a pull request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot.web import blocks
from bot.web.subjects import BackendsSubject, HeadSubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend, Job, Pull
    from bot.web.blocks import JobLine


async def add_job_lines(tx: Transaction, context: Context, state: PullState) -> PullState:
    """Return the state with lines on the failed jobs and tests of every judged head."""
    pulls = [pull for head in state.heads for pull in (head.view, head.view.previous) if pull]
    lines = await blocks.job_lines(
        context.features, tx, BackendsSubject(runs=_failed_runs(pulls), url=context.settings.url)
    )
    heads = []
    for head in state.heads:
        view = await _of_pull(tx, context, head.view, lines)
        if view.previous:
            view = replace(view, previous=await _of_pull(tx, context, view.previous, lines))
        heads.append(replace(head, view=view))
    return replace(state, heads=tuple(heads))


def _failed_runs(pulls: Iterable[Pull]) -> dict[str, frozenset[tuple[str, int]]]:
    found: dict[str, set[tuple[str, int]]] = {}
    for pull in pulls:
        for backend in pull.backends:
            for job in backend.failing:
                found.setdefault(backend.repo.lower(), set()).add((job.run_id, job.run_attempt))
    return {backend: frozenset(runs) for backend, runs in found.items()}


async def _of_pull(tx: Transaction, context: Context, pull: Pull, lines: Mapping[str, list[JobLine]]) -> Pull:
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
