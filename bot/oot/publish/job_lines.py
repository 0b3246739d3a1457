"""What other capabilities say of backends' failed jobs and tests, put into what is shown of a pull request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot.web import blocks
from bot.web.blocks import BackendSubject, HeadSubject

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend, Job, Pull
    from bot.web.blocks import JobLine


async def added(tx: Transaction, context: Context, state: PullState) -> PullState:
    """Return the state with lines on the failed jobs and tests of every judged head."""
    heads = []
    for head in state.heads:
        view = await _of_pull(tx, context, head.view)
        if view.previous:
            view = replace(view, previous=await _of_pull(tx, context, view.previous))
        heads.append(replace(head, view=view))
    return replace(state, heads=tuple(heads))


async def _of_pull(tx: Transaction, context: Context, pull: Pull) -> Pull:
    if not any(backend.jobs for backend in pull.backends):
        return pull
    subject = HeadSubject(
        repo=pull.repo,
        head_sha=pull.head_sha,
        labels={backend.repo.casefold(): backend.label for backend in pull.backends},
        failing={
            backend.repo.casefold(): frozenset((job.run_id, job.run_attempt) for job in backend.failing)
            for backend in pull.backends
            if backend.failing
        },
        url=context.settings.url,
    )
    tests = await blocks.head_tests(context.features, tx, subject)
    backends = [
        replace(await _of_backend(tx, context, one), thin=tests.thin.get(one.repo.casefold(), ""))
        for one in pull.backends
    ]
    return replace(pull, backends=tuple(backends), tests=tests)


async def _of_backend(tx: Transaction, context: Context, backend: Backend) -> Backend:
    runs = tuple(sorted({(job.run_id, job.run_attempt) for job in backend.failing}))
    if not runs:
        return backend
    subject = BackendSubject(repo=backend.repo, runs=runs, url=context.settings.url)
    found = await blocks.job_lines(context.features, tx, subject)
    jobs = tuple(
        replace(job, lines=tuple(line for line in found if _is_about(line, job))) if job.red else job
        for job in backend.jobs
    )
    rest = [line for line in found if not any(_is_about(line, job) for job in backend.jobs)]
    return replace(backend, jobs=jobs, lines=tuple(rest))


def _is_about(line: JobLine, job: Job) -> bool:
    return (line.run_id, line.run_attempt, line.job) == (job.run_id, job.run_attempt, job.name)
