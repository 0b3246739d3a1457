"""Which check runs of backends should a head carry, and what has to be done so that it does? Desired against present.

A check run is updated by its stored id and never reopened by a late report; what begins a new one is a new basis: a
re-run or a new dispatch. `domain.desired_gate` has the gate.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
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
# GitHub lets 500 check runs and comments an hour be made: no backend may use up what all of them share
MOST_JOB_CHECKS = 50  # of one dispatch
MOST_ATTEMPTS = 20  # of one dispatch; what comes later is written into the last one
LABEL_GONE = "the label was removed: this backend is not shown here any more"
DELISTED = "this backend takes no part any more: it left the allowlist"
SILENCED = "this backend is only told of events now: its reports are refused"
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
    cases = [
        _Case(
            backend=backend,
            head_sha=pull.head_sha,
            dispatch=dispatches[key],
            entry=entries.get(key),
            present=present,
            terms=terms,
        )
        for backend in pull.backends
        if (key := backend.repo.casefold()) in dispatches and backend.has_checks
    ]
    wanted = [write for case in cases for write in (*_of_backend(case), *_of_jobs(case))]
    begun = [write.check for write in wanted if write and write.check_run_id is None]
    newest = {row["name"]: row["external_id"] for row in present}
    newest |= {check.name: check.external_id for check in begun}
    latest = {_job_id(case.dispatch, job) for case in cases for job in case.backend.jobs}
    return Plan.of([*wanted, *_superseded(present, terms, {*newest.values(), *latest})])


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One backend on one head: what decides which check runs it has there, and whether they go on."""

    backend: Backend
    head_sha: str
    dispatch: Row
    entry: Entry | None  # None: it left the allowlist
    present: Sequence[Row]  # all check runs of the head, oldest first
    terms: Terms

    @property
    def by_job(self) -> bool:
        """Whether its entry asks for a check run of every job."""
        return self.entry is not None and self.entry.checks == "jobs"

    @property
    def in_common(self) -> dict[str, str]:
        """What all its check runs are made with."""
        return {
            "prefix": self.terms.prefix,
            "head_sha": self.head_sha,
            "failure_conclusion": self.entry.conclusion if self.entry else "neutral",
        }

    @property
    def may_report(self) -> bool:
        """Whether its reports are taken: else no verdict will come."""
        return self.entry is not None and self.entry.level > Level.L1

    @property
    def why_ended(self) -> str:
        """What an unfinished check run says that does not go on."""
        if self.may_report:
            return LABEL_GONE
        return DELISTED if self.entry is None else SILENCED

    @cached_property
    def newest(self) -> dict[str, Row]:
        """The newest check run of each name."""
        return {row["name"]: row for row in self.present}

    @cached_property
    def asked_for(self) -> bool:
        """Whether it is to be shown as things are now: it blocks, or the pull request carries its label."""
        return self.backend.blocks or asks_for(
            self.backend.device, self.terms.labels, self.terms.label_prefixes
        )

    def may_begin(self, name: str) -> bool:
        """Whether a check run of this name may begin: on an older head only in place of another."""
        return self.terms.current or name in self.newest

    def goes_on(self, row: Row | None) -> bool:
        """Whether a check run, begun already where there is a `row`, says how things stand; else it is ended."""
        if not self.may_report and not self.backend.state.finished:
            return False
        begun_without_label = row is not None and self.dispatch["level"] >= Level.L4
        return self.asked_for or begun_without_label


def _of_backend(case: _Case) -> Iterator[Write | None]:
    """Yield the write of the backend's own check run."""
    basis = f"{case.dispatch['id']}/{case.backend.attempt}"
    check = backend_check(case.backend, external_id=_fresh_id(case, basis), **case.in_common)
    if not case.by_job:
        check = annotated(check, case.backend.failing, case.terms.files)
    if case.may_begin(check.name):
        yield _write(case, check, basis, _continued(case, check.name, basis))


def _fresh_id(case: _Case, basis: str) -> str:
    """Return our key of a new check run about this: shown before, it is numbered, as another's came in between."""
    before = sum(row["basis"] == basis for row in case.present)
    return f"{basis}/{before + 1}" if before else basis


def _continued(case: _Case, name: str, basis: str) -> Row | None:
    """Return the check run that is updated; None where a new one begins, as the last was about something else."""
    row = case.newest.get(name)
    if row is None or row["basis"] == basis:
        return row
    tries = [one for one in case.present if one["basis"].startswith(f"{case.dispatch['id']}/")]
    if sum(one["name"] == name for one in tries) >= MOST_ATTEMPTS:
        return row
    unasked = row["status"] != "completed" and not case.asked_for
    return row if unasked else None  # it is ended, whatever it was about


def _of_jobs(case: _Case) -> Iterator[Write | None]:
    """Yield the writes of the jobs' check runs: where its entry asks for them, and of those once begun."""
    ours = _job_prefix(case.dispatch)
    begun = {row["external_id"]: row for row in case.present if row["external_id"].startswith(ours)}
    if not case.by_job and not begun:
        return
    room = MOST_JOB_CHECKS - len(begun)
    checks = job_checks(case.backend, external_id=lambda job: _job_id(case.dispatch, job), **case.in_common)
    for job, check in zip(case.backend.jobs, checks, strict=True):
        row = begun.get(check.external_id)
        begins = row is None and room > 0 and case.by_job and case.may_begin(check.name)
        room -= begins
        if begins or row is not None:
            told = annotated(check, [job] if job.red else [], case.terms.files)
            write = _write(case, told, told.external_id, row)
            yield replace(write, urgent=False) if write else None  # any number of jobs may be reported


def _job_id(dispatch: Row, job: Job) -> str:
    """Return our key of an attempt of a job, hashed so that none can pose as two."""
    parts = msgspec.json.encode([job.run_id, job.run_attempt, job.workflow, job.name])
    return _job_prefix(dispatch) + hashlib.sha256(parts).hexdigest()[:32]


def _job_prefix(dispatch: Row) -> str:
    """Return how our keys of all jobs of a dispatch begin."""
    return f"{dispatch['id']}/job/"


def _write(case: _Case, check: CheckRun, basis: str, row: Row | None) -> Write | None:
    """Return the write after which a check run says how things stand, or is ended; None when it is right."""
    if case.goes_on(row):
        return _shown(check, basis, row, case.terms)
    return _ended(check, row, case.terms, case.why_ended)


def _shown(check: CheckRun, basis: str, row: Row | None, terms: Terms) -> Write | None:
    """Return the write that makes a check run what it should be; concluded ones are not opened again."""
    if row is None:
        return needed(check, basis, None, terms)
    if _is_closed(row, check, terms):
        return None
    return needed(replace(check, external_id=row["external_id"]), basis, row, terms)


def _is_closed(row: Row, check: CheckRun, terms: Terms) -> bool:
    """Whether a check run stays as it was concluded, whatever it should say now."""
    if _taken_back(row):
        return not terms.current  # nothing begins again on an older head
    return bool(row["status"] == "completed" and check.status != "completed")


def _taken_back(row: Row) -> bool:
    """Whether a check run ended only because its label went away; the label back, it goes on."""
    return bool(row["conclusion"] == "neutral" and row["label_ended"])


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


def _superseded(present: Sequence[Row], terms: Terms, standing: set[str]) -> Iterator[Write | None]:
    """Yield the writes that end check runs in whose place, under the same name, there is a newer one.

    `standing` holds our keys of those that have none: the newest of each name, and what the latest attempts of jobs
    have, whatever they are called.
    """
    for row in present:
        unfinished = row["status"] != "completed" and row["check_run_id"] is not None
        if unfinished and row["external_id"] not in standing and row["name"] != terms.gate_name:
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
