"""Which check runs of backends should a head carry, and what has to be done so that it does? Desired against present.

A check run is updated by its stored id and never reopened by a late report; what begins a new one is a new basis: a
re-run or a new dispatch. `domain.desired_gate` has the gate.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from bot.domain.allowlist_entry import Level
from bot.domain.checkrun import CheckRun, backend_check, job_checks
from bot.domain.labels import asks_for
from bot.domain.marking import annotated
from bot.domain.writes import Plan, needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.domain.allowlist import Entry
    from bot.domain.view import Backend, Job, Pull
    from bot.domain.writes import Terms, Write

Row = dict[str, Any]
LABEL_GONE = "the label was removed: this backend is not shown here any more"
DELISTED = "this backend takes no part any more: it left the allowlist"
SUPERSEDED = "superseded: a newer run of this backend took its place"


def backends(
    pull: Pull,
    dispatches: Mapping[str, Row],
    entries: Mapping[str, Entry],
    present: Sequence[Row],
    terms: Terms,
) -> Plan:
    """Return what has to be written of the backends' check runs.

    `dispatches` and `entries` are keyed by the backend's case folded name; `present` holds the oot_check rows of
    this head, oldest first.
    """
    wanted: list[Write | None] = []
    jobs: set[str] = set()
    for backend in pull.backends:
        key = backend.repo.casefold()
        if key in dispatches and backend.has_checks:
            jobs |= {_job_id(dispatches[key], job) for job in backend.jobs}
            wanted += _of_backend(
                backend,
                pull.head_sha,
                dispatch=dispatches[key],
                entry=entries.get(key),
                present=present,
                terms=terms,
            )
    return Plan.of([*wanted, *_superseded(present, terms, jobs)])


def _of_backend(
    backend: Backend,
    head_sha: str,
    *,
    dispatch: Row,
    entry: Entry | None,
    present: Sequence[Row],
    terms: Terms,
) -> Iterator[Write | None]:
    """Yield the check run of a backend and, where its entry asks for that, those of its jobs."""
    terms_here = {
        "prefix": terms.prefix,
        "head_sha": head_sha,
        "failure_conclusion": entry.conclusion if entry else "neutral",
    }
    shown = backend.blocks or asks_for(backend.device, terms.labels, terms.label_prefixes)
    by_name = {row["name"]: row for row in present}
    by_id = {row["external_id"]: row for row in present}
    basis = f"{dispatch['id']}/{backend.attempt}"
    by_job = entry is not None and entry.checks == "jobs"
    check = backend_check(backend, external_id=basis, **terms_here)
    row = by_name.get(check.name)
    if row is not None and row["basis"] != basis and (shown or row["status"] == "completed"):
        row = None  # it was about something else; one that has lost its label is ended all the same
    silenced = entry is None and not backend.state.finished  # its reports are refused: no verdict will come
    begun = dispatch["level"] >= Level.L4 and row is not None  # at a level that asks for no label
    stays, why_not = (shown or begun) and not silenced, DELISTED if entry is None else LABEL_GONE
    if not by_job:
        check = annotated(check, backend.failing, terms.files)
    if terms.current or check.name in by_name:
        yield _shown(check, basis, row, terms) if stays else _ended(check, row, terms, why_not)
    if not by_job and not any(key.startswith(_job_id(dispatch)) for key in by_id):
        return
    jobs = job_checks(backend, external_id=lambda job: _job_id(dispatch, job), **terms_here)
    for job, of_job in zip(backend.jobs, jobs, strict=True):
        row = by_id.get(of_job.external_id)
        begins = by_job and (terms.current or of_job.name in by_name)
        if begins or row is not None:  # what was begun is concluded
            told = annotated(of_job, [job] if job.red else [], terms.files)
            basis = of_job.external_id
            begun = dispatch["level"] >= Level.L4 and row is not None
            stays = (shown or begun) and not silenced
            due = _shown(told, basis, row, terms) if stays else _ended(told, row, terms, why_not)
            yield due and replace(due, urgent=False)  # any number of jobs may be reported


def _job_id(dispatch: Row, job: Job | None = None) -> str:
    """Return our key of an attempt of a job, hashed so that none can pose as two; or how those of all begin."""
    if job is None:
        return f"{dispatch['id']}/job/"
    parts = msgspec.json.encode([job.run_id, job.run_attempt, job.workflow, job.name])
    return _job_id(dispatch) + hashlib.sha256(parts).hexdigest()[:32]


def _shown(check: CheckRun, basis: str, row: Row | None, terms: Terms) -> Write | None:
    """Return the write that makes a check run what it should be; concluded ones are not opened again."""
    if row is not None:
        check = replace(check, external_id=row["external_id"])
        if _taken_back(row) and not terms.current:
            return None
        if row["status"] == "completed" and check.status != "completed" and not _taken_back(row):
            return None
    return needed(check, basis, row, terms)


def _ended(check: CheckRun, row: Row | None, terms: Terms, why: str) -> Write | None:
    """Return the write that ends an unfinished check run nobody asks for; one that never began stays away."""
    if row is None or row["status"] == "completed":
        return None
    ended = replace(
        check,
        status="completed",
        conclusion="neutral",
        title=why,
        external_id=row["external_id"],
        annotations=(),
    )
    return needed(ended, row["basis"], row, terms, label_ended=True)


def _superseded(present: Sequence[Row], terms: Terms, jobs: set[str]) -> Iterator[Write | None]:
    """Yield the writes that end check runs in whose place, under the same name, a newer one was made.

    Those of `jobs`, the latest attempts of all jobs, have no newer one, whatever they are called.
    """
    newest = {row["name"]: row for row in present}
    for row in present:
        unfinished = row["status"] != "completed" and row["check_run_id"] is not None
        if (
            row["external_id"] not in jobs
            and unfinished
            and newest[row["name"]] is not row
            and row["name"] != terms.gate_name
        ):
            check = CheckRun(
                name=row["name"],
                head_sha=row["head_sha"],
                external_id=row["external_id"],
                status="completed",
                conclusion="neutral",
                title=SUPERSEDED,
                summary=SUPERSEDED,
            )
            yield needed(check, row["basis"], row, terms)


def _taken_back(row: Row) -> bool:
    """Whether a check run ended only because its label went away; the label back, it goes on."""
    return bool(row["conclusion"] == "neutral" and row["label_ended"])
