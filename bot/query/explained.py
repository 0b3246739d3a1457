"""What are the failures of a head? New or known from elsewhere: every failed job compared, once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.query import comparing
from bot.query.comparing import Wanted
from bot.store import pulls
from bot.store.baselines import Failed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.domain.history import Compared
    from bot.domain.view import Job
    from bot.query.head import Head
    from bot.store import Transaction

Row = dict[str, Any]
MOST_COMPARED = 30  # failing jobs of a backend that are compared with others


async def explained(
    tx: Transaction, head: Head, *, base_ref: str | None, only: Collection[str] | None = None
) -> Head:
    """Return a head whose failing jobs say what they are; `only` those of some backends, case folded."""
    sha = head.view.head_sha
    merge_bases = await pulls.merge_bases(tx, head.view.repo, [sha], base_ref=base_ref or "")
    found = await comparing.compare(tx, comparable(head, base_ref, merge_bases.get(sha), only=only))
    return with_histories(head, found.found)


def comparable(
    head: Head, base_ref: str | None, merge_base: str | None, *, only: Collection[str] | None = None
) -> list[Wanted]:
    """Return the failed jobs of a head that are to be compared, of some backends or of all."""
    wanted: list[Wanted] = []
    for backend in head.view.backends:
        key = backend.repo.casefold()
        failing = {_attempt(job) for job in backend.failing[:MOST_COMPARED]}
        if failing and (only is None or key in only):
            facts = head.facts[key]
            bases = frozenset(filter(None, (facts.dispatch["base_sha"], merge_base)))
            same = (key, facts.dispatch["base_ref"])  # on another base branch it may fail for good reason
            like = [
                one for one in head.told if (one.dispatch["backend_key"], one.dispatch["base_ref"]) == same
            ]
            mine = [row for told in like for row in told.jobs]
            wanted += [
                Wanted(failed=Failed(job=row, base_ref=base_ref, base_shas=bases), same_head=mine)
                for row in facts.jobs
                if _attempt_of(row) in failing and row["completed_at"] is not None
            ]
    return wanted


def with_histories(head: Head, found: Mapping[str, Compared]) -> Head:
    """Return a head whose failed jobs say what they are."""
    if not found:
        return head
    keys = {
        (key, _attempt_of(row)): row["job_key"] for key, facts in head.facts.items() for row in facts.jobs
    }
    backends = []
    for backend in head.view.backends:
        key = backend.repo.casefold()
        told = [
            (job, found.get(keys.get((key, _attempt(job)), "")) if job.red else None) for job in backend.jobs
        ]
        if not any(one for _, one in told):
            backends.append(backend)
            continue
        compared = tuple(
            replace(job, history=one.history, evidence_url=one.url, evidence_elsewhere=one.elsewhere)
            if one
            else job
            for job, one in told
        )
        backends.append(replace(backend, jobs=compared))
    return replace(head, view=replace(head.view, backends=tuple(backends)))


def _attempt(job: Job) -> tuple[str, int, str, str]:
    return job.run_id, job.run_attempt, job.workflow, job.name


def _attempt_of(row: Row) -> tuple[str, int, str, str]:
    return row["run_id"], row["run_attempt"], row["workflow_name"], row["job_name"]
