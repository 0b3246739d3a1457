"""Which check runs should a head carry, and what has to be done so that it does? Desired against present.

A check run is updated by its stored id and never reopened by a late report; what begins a new one is a new basis: a
re-run, a new dispatch, or for the gate anything that makes a concluded one unfinished again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from bot.domain.checkrun import CheckRun, backend_check, gate_check, job_checks
from bot.domain.labels import asks_for
from bot.domain.marking import annotated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.domain.allowlist import Entry
    from bot.domain.view import Backend, Job, Pull

Row = dict[str, Any]
LABEL_GONE = "the label was removed: this backend is not shown here any more"
DELISTED = "this backend takes no part any more: it left the allowlist"
SUPERSEDED = "superseded: a newer run of this backend took its place"


@dataclass(frozen=True, kw_only=True)
class Write:
    """One check run to be made (`check_run_id` None) or updated."""

    check: CheckRun
    basis: str
    label_ended: bool  # concluded only because the pull request lost the label, or the backend its entry
    check_run_id: int | None
    digest: str
    urgent: bool  # a gate or a backend's verdict: goes before the rest when the budget is short
    not_before: int  # epoch milliseconds: updates of one check run keep a distance, verdicts excepted


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What has to be written on a head, the gate and verdicts first, and how much is right already."""

    writes: tuple[Write, ...] = ()
    unchanged: int = 0

    def __add__(self, other: Plan) -> Plan:
        """Return both plans as one; each keeps its order."""
        return Plan(writes=self.writes + other.writes, unchanged=self.unchanged + other.unchanged)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What settings and the pull request say about check runs."""

    prefix: str
    label_prefixes: tuple[str, ...]
    labels: frozenset[str]  # the pull request's
    gate: bool  # a gate was published on this repository before
    interval: int  # milliseconds between two updates of one check run
    current: bool = True  # on an older head what was begun goes on, and nothing begins
    files: frozenset[str] = frozenset()  # those it changes: failed tests are annotated only there

    @property
    def gate_name(self) -> str:
        """The gate's name."""
        return f"{self.prefix} / gate"


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
        if key in dispatches and backend.level >= 3:
            jobs |= {_job_id(dispatches[key], job) for job in backend.jobs}
            wanted += _of_backend(
                backend,
                pull.head_sha,
                dispatch=dispatches[key],
                entry=entries.get(key),
                present=present,
                terms=terms,
            )
    return _plan([*wanted, *_superseded(present, terms, jobs)])


def gate(
    pull: Pull, dispatches: Mapping[str, Row], present: Sequence[Row], terms: Terms, *, due: bool
) -> Plan:
    """Return what has to be written of the gate; `present` holds the gates made on this commit, oldest first.

    There is one where a backend blocks, and once the repository has ever had one also where none does: but there only
    on a commit on which it is `due`, so that "no blocking backend" is never said of one nobody was asked about.
    """
    blocking = [backend for backend in pull.backends if backend.level >= 4]
    if not blocking and not (terms.gate and due):
        return Plan()
    about = sorted(
        f"{dispatches[key]['id'] if key in dispatches else key}/{backend.attempt}"
        for backend in blocking
        for key in (backend.repo.casefold(),)
    )
    basis = hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]
    row = present[-1] if present else None
    if row is None and not terms.current:
        return Plan()
    number = int(row["external_id"].rpartition("/")[2]) if row else 1
    check = gate_check(
        pull.backends,
        prefix=terms.prefix,
        head_sha=pull.head_sha,
        external_id="",
        page_url=pull.page_url,
        unknown=pull.gate_unknown,
    )
    if row and row["status"] == "completed" and check.status != "completed":
        row, number = None, number + 1
    repository = hashlib.sha256(pull.repo.casefold().encode()).hexdigest()[:8]
    external_id = f"gate/{repository}/{pull.head_sha}/{number}"
    # where nobody was told anything there is nothing to wait for yet: that can be many pull requests at once;
    # and more words to an undecided gate wait: first it is said of the backends themselves
    told = any(backend.repo.casefold() in dispatches for backend in blocking)
    urgent = told or not blocking if row is None else not row["digest"]
    return _plan([_write(replace(check, external_id=external_id), basis, row, terms, urgent=urgent)])


def hope(pull: Pull, terms: Terms) -> int:
    """Return how far a head is from a failure of the gate: 0 failed, 1 undecided, 2 passed."""
    check = gate_check(
        pull.backends,
        prefix=terms.prefix,
        head_sha="",
        external_id="",
        page_url="",
        unknown=pull.gate_unknown,
    )
    return 2 if check.conclusion == "success" else 0 if check.conclusion else 1


def digest(check: CheckRun) -> str:
    """Return what identifies a check run's content."""
    return hashlib.sha256(msgspec.json.encode([check.body(), check.annotations], order="sorted")).hexdigest()


def _plan(wanted: Sequence[Write | None]) -> Plan:
    writes = [write for write in wanted if write is not None]
    ordered = sorted(writes, key=lambda write: (not write.urgent, write.not_before))
    return Plan(writes=tuple(ordered), unchanged=len(wanted) - len(writes))


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
    shown = backend.level > 3 or asks_for(backend.device, terms.labels, terms.label_prefixes)
    by_name = {row["name"]: row for row in present}
    by_id = {row["external_id"]: row for row in present}
    basis = f"{dispatch['id']}/{backend.attempt}"
    by_job = entry is not None and entry.checks == "jobs"
    check = backend_check(backend, external_id=basis, **terms_here)
    row = by_name.get(check.name)
    if row is not None and row["basis"] != basis and (shown or row["status"] == "completed"):
        row = None  # it was about something else; one that has lost its label is ended all the same
    silenced = entry is None and not backend.state.finished  # its reports are refused: no verdict will come
    begun = dispatch["level"] > 3 and row is not None  # at a level that asks for no label
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
            begun = dispatch["level"] > 3 and row is not None
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
    return _write(check, basis, row, terms)


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
    return _write(ended, row["basis"], row, terms, label_ended=True)


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
            yield _write(check, row["basis"], row, terms)


def _write(
    check: CheckRun,
    basis: str,
    row: Row | None,
    terms: Terms,
    *,
    label_ended: bool = False,
    urgent: bool = False,
) -> Write | None:
    now_is = digest(check)
    if row is not None and row["digest"] == now_is and row["check_run_id"] is not None:
        return None
    concluding = row is None or (row["status"], row["conclusion"]) != (check.status, check.conclusion)
    verdict = check.status == "completed" and concluding  # more words to the same verdict can wait
    return Write(
        check=check,
        basis=basis,
        label_ended=label_ended,
        check_run_id=row["check_run_id"] if row else None,
        digest=now_is,
        urgent=urgent or verdict,
        not_before=0 if verdict or row is None else row["written_at"] + terms.interval,
    )


def _taken_back(row: Row) -> bool:
    """Whether a check run ended only because its label went away; the label back, it goes on."""
    return bool(row["conclusion"] == "neutral" and row["label_ended"])
