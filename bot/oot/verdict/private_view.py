"""A pull request's head as the public may see it: without the names that private backends give their jobs and tests."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.oot.results.private_names import read_private_names

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.results.private_names import PrivateNames
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend, Job, Pull
    from bot.web.blocks import JobLine

PRIVATE_LOG = "the log is private"
GITHUB_PAGE = re.compile(
    r"https?://[^/?#]+/[^/?#]+/[^/?#]+/actions/runs/[0-9]+(?:/(?:attempts|job)/[0-9]+)*/?"
)


async def without_private_names(tx: Transaction, settings: Settings, state: PullState) -> PullState:
    """Return the state as check runs and comment may show it."""
    backends = {backend.repo for head in state.heads for backend in head.view.backends}
    names = await read_private_names(tx, settings, backends)
    if not names.backends:
        return state
    heads = tuple(
        replace(
            head,
            view=hide_in_pull(head.view, names),
            undispatched=tuple(hide_in_backend(one, names) for one in head.undispatched),
        )
        for head in state.heads
    )
    return replace(state, heads=heads)


def hide_in_pull(pull: Pull, names: PrivateNames) -> Pull:
    """Return a head without private names."""
    return replace(
        pull,
        backends=tuple(hide_in_backend(one, names) for one in pull.backends),
        previous=hide_in_pull(pull.previous, names) if pull.previous else None,
    )


def hide_in_backend(backend: Backend, names: PrivateNames) -> Backend:
    """Return a backend without private names."""
    if not names.hides(backend.repo):
        return backend
    jobs = tuple(_hide_in_job(job, backend.repo, names) for job in backend.jobs)
    lines = tuple(_hide_in_line(line, names.job(backend.repo, "", line.job)) for line in backend.lines)
    return replace(backend, jobs=jobs, lines=lines, run_url=_page(backend.run_url))


def _hide_in_job(job: Job, backend: str, names: PrivateNames) -> Job:
    name = names.job(backend, job.workflow, job.name)
    return replace(
        job,
        workflow=names.workflow(backend, job.workflow),
        name=name,
        url=_page(job.url),
        failed=job.failed if job.failed is not None else len(job.failed_tests) or None,
        failed_tests=(),
        artifact_url=None,
        environment={},
        triage="",
        evidence_url=_page(job.evidence_url),
        lines=tuple(_hide_in_line(line, name) for line in job.lines),
    )


def _hide_in_line(line: JobLine, name: str) -> JobLine:
    return replace(line, job=name, words=PRIVATE_LOG, code="", place="", url=None)


def _page(url: str | None) -> str | None:
    """Return an address on GitHub that names nothing but ids; None for any other."""
    return url if url and GITHUB_PAGE.fullmatch(url) else None
