"""The check runs of backends a head should have, compared with those it has: what is to be written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from bot.oot.allowlist.entry import Level
from bot.oot.publish.check import CheckPlan, annotate_backend, annotate_job, write_needed
from bot.oot.publish.check_text import CheckRun, backend_check, job_checks
from bot.oot.verdict.pull_state import labels_ask_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.oot.allowlist.entry import Entry
    from bot.oot.publish.check import CheckTerms, CheckWrite
    from bot.oot.publish.tables import CheckRow
    from bot.oot.results.tables import DispatchRow
    from bot.oot.verdict.view import Backend, Job, Pull

# GitHub allows 500 new check runs and comments an hour, shared by all backends
MOST_JOB_CHECKS = 50  # of one dispatch
MOST_ATTEMPTS = 20  # of one dispatch; later ones are written into the last check run
LABEL_GONE = "the label was removed: this backend is not shown here any more"
DELISTED = "this backend takes no part any more: it left the allowlist"
SILENCED = "this backend only receives events now: its reports are refused"
BY_JOB = "every job has a check run of its own now"
SUPERSEDED = "superseded: a newer run of this backend took its place"


def plan_backend_checks(
    pull: Pull,
    dispatches: Mapping[str, DispatchRow],
    entries: Mapping[str, Entry],
    present: Sequence[CheckRow],
    terms: CheckTerms,
) -> CheckPlan:
    """Return the writes that the backends' check runs need.

    `dispatches` and `entries` are keyed by the backend's case folded name; `present` holds this head's check runs,
    oldest first.
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
    latest = [check for case in cases for _, check in case.jobs]
    newest = {row["name"]: row["external_id"] for row in present}
    # also those that may not begin, as of a demoted backend: what they replace would never end
    newest |= {check.name: check.external_id for check in (*begun, *latest)}
    standing = {*newest.values(), *(check.external_id for check in latest)}
    return CheckPlan.of([*wanted, *_superseded(present, terms, standing)])


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One backend on one head, with all that determines its check runs there."""

    backend: Backend
    head_sha: str
    dispatch: DispatchRow
    entry: Entry | None  # None: it left the allowlist
    present: Sequence[CheckRow]  # all check runs of the head, oldest first
    terms: CheckTerms

    @property
    def per_job(self) -> bool:
        """Whether its jobs have check runs, as its entry or the setting asks."""
        return self.by_job or (self.entry is not None and self.entry.checks == "jobs")

    @property
    def by_job(self) -> bool:
        """Whether its jobs have check runs in place of its own."""
        return self.terms.names == "crcr"

    @property
    def common_arguments(self) -> dict[str, str]:
        """The arguments shared by all its check runs."""
        return {
            "prefix": self.terms.prefix,
            "head_sha": self.head_sha,
            "failure_conclusion": self.entry.conclusion if self.entry else "neutral",
        }

    @property
    def may_report(self) -> bool:
        """Whether its reports are accepted; otherwise no verdict will come."""
        return self.entry is not None and self.entry.level > Level.L1

    @property
    def reason_ended(self) -> str:
        """The title of an unfinished check run that is ended."""
        if self.may_report:
            return LABEL_GONE
        return DELISTED if self.entry is None else SILENCED

    @cached_property
    def newest(self) -> dict[str, CheckRow]:
        """The newest check run of each name."""
        return {row["name"]: row for row in self.present}

    @cached_property
    def begun(self) -> dict[str, CheckRow]:
        """The check runs of its jobs that have begun, by our keys."""
        prefix = _job_prefix(self.dispatch)
        return {row["external_id"]: row for row in self.present if row["external_id"].startswith(prefix)}

    @cached_property
    def jobs(self) -> list[tuple[Job, CheckRun]]:
        """The latest attempt of each of its jobs, with its check run, begun or not; empty where jobs have none."""
        if not self.per_job and not self.begun:
            return []
        checks = job_checks(
            self.backend,
            external_id=lambda job: _job_id(self.dispatch, job),
            of_pull=self.dispatch["pr_number"] if self.by_job else None,
            **self.common_arguments,
        )
        return list(zip(self.backend.jobs, checks, strict=True))

    def renamed(self, basis: str) -> CheckRow | None:
        """Return its own check run begun under another name, before another backend came to share its device."""
        return next((row for row in reversed(self.present) if row["basis"] == basis), None)

    @cached_property
    def requested(self) -> bool:
        """Whether its check runs are wanted now: it blocks, or the pull request has its label."""
        return self.backend.blocks or labels_ask_for(
            self.backend.device, self.terms.labels, self.terms.label_prefixes
        )

    @property
    def awaited(self) -> bool:
        """Whether a check run may wait for it: a backend that need not answer gets one only with a report or a run."""
        backend = self.backend
        answered = backend.jobs or backend.state.red or self.dispatch["run_id"] is not None
        return self.dispatch["answers"] != "some" or bool(answered)

    @property
    def demoted(self) -> bool:
        """Whether it is kept from beginning check runs until a pull request is closed; a blocking one never is."""
        return not self.backend.blocks and self.dispatch["backend_key"] in self.terms.demoted

    def may_begin(self, name: str) -> bool:
        """Whether a check run of this name may begin: on an older head, only to replace another."""
        return self.awaited and not self.demoted and (self.terms.current or name in self.newest)

    def continues(self, row: CheckRow | None) -> bool:
        """Whether a check run (`row` if it has begun) shows the backend's state; otherwise it is ended."""
        if not self.may_report and not self.backend.state.finished:
            return False
        begun_without_label = row is not None and self.dispatch["level"] >= Level.L4
        return self.requested or begun_without_label


def _of_backend(case: _Case) -> Iterator[CheckWrite | None]:
    """Yield the write of the backend's own check run, which ends it where jobs have theirs instead."""
    basis = f"{case.dispatch['id']}/{case.backend.attempt}"
    check = backend_check(case.backend, external_id=_new_id(case, basis), **case.common_arguments)
    if not case.per_job:
        check = annotate_backend(check, case.backend, case.terms.marks, case.terms.files)
    row = _continued(case, check.name, basis)
    if case.by_job:
        yield _ended(check, row, case.terms, BY_JOB)
    elif row is not None or case.may_begin(check.name):
        yield _write(case, check, basis, row)


def _new_id(case: _Case, basis: str) -> str:
    """Return our key for a new check run, numbered if an earlier one had the same basis."""
    before = sum(row["basis"] == basis for row in case.present)
    return f"{basis}/{before + 1}" if before else basis


def _continued(case: _Case, name: str, basis: str) -> CheckRow | None:
    """Return the check run to update; None where a new one begins because the last had another basis."""
    row = case.newest.get(name) or case.renamed(basis)
    if row is None or row["basis"] == basis:
        return row
    attempts = [check for check in case.present if check["basis"].startswith(f"{case.dispatch['id']}/")]
    if sum(check["name"] == name for check in attempts) >= MOST_ATTEMPTS:
        return row
    if row["status"] != "completed" and (case.demoted or not (case.requested and case.awaited)):
        return row  # it ends, whatever its basis
    return None


def _of_jobs(case: _Case) -> Iterator[CheckWrite | None]:
    """Yield the writes of the jobs' check runs: all if the entry asks for them, else those that have begun."""
    allowed = MOST_JOB_CHECKS - len(case.begun)
    for job, check in case.jobs:
        row = case.begun.get(check.external_id)
        wanted = allowed > 0 or (case.by_job and job.red)  # a guard that looks for failures finds all
        begins = row is None and wanted and case.per_job and case.may_begin(check.name)
        allowed -= begins
        if begins or row is not None:
            full = annotate_job(check, case.backend, job, case.terms.marks, case.terms.files)
            write = _write(case, full, full.external_id, row)
            yield replace(write, urgent=False) if write else None  # any number of jobs may be reported


def _job_id(dispatch: DispatchRow, job: Job) -> str:
    """Return our key for an attempt of a job, hashed so that no two jobs share one."""
    parts = msgspec.json.encode([job.run_id, job.run_attempt, job.workflow, job.name])
    return _job_prefix(dispatch) + hashlib.sha256(parts).hexdigest()[:32]


def _job_prefix(dispatch: DispatchRow) -> str:
    """Return the prefix of our keys for all jobs of a dispatch."""
    return f"{dispatch['id']}/job/"


def _write(case: _Case, check: CheckRun, basis: str, row: CheckRow | None) -> CheckWrite | None:
    """Return the write that shows the state in a check run, or ends it; None when nothing has changed."""
    if case.continues(row):
        return _shown(check, basis, row, case.terms)
    return _ended(check, row, case.terms, case.reason_ended)


def _shown(check: CheckRun, basis: str, row: CheckRow | None, terms: CheckTerms) -> CheckWrite | None:
    """Return the write that brings a check run up to date; concluded ones are not reopened."""
    if row is None:
        return write_needed(check, basis, None, terms)
    if _is_final(row, check, terms):
        return None
    return write_needed(replace(check, external_id=row["external_id"]), basis, row, terms)


def _is_final(row: CheckRow, check: CheckRun, terms: CheckTerms) -> bool:
    """Whether a check run stays concluded as it is, whatever the state is now."""
    # ended by its label alone: it resumes with the label
    if row["conclusion"] == "neutral" and row["label_ended"]:
        return not terms.current  # nothing begins again on an older head
    return row["status"] == "completed" and check.status != "completed"


def _ended(check: CheckRun, row: CheckRow | None, terms: CheckTerms, reason: str) -> CheckWrite | None:
    """Return the write that ends an unfinished check run; none for one that has not begun."""
    if row is None or row["status"] == "completed":
        return None
    ended = replace(
        check,
        status="completed",
        conclusion="neutral",
        title=reason,
        external_id=row["external_id"],
        annotations=(),
    )
    return write_needed(ended, row["basis"], row, terms, label_ended=True)


def _superseded(
    present: Sequence[CheckRow], terms: CheckTerms, standing: set[str]
) -> Iterator[CheckWrite | None]:
    """Yield the writes that end check runs replaced by a newer one of the same name.

    `standing` holds our keys of those not replaced: the newest of each name, and those of jobs' latest attempts,
    whatever their names.
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
            yield write_needed(check, row["basis"], row, terms)
