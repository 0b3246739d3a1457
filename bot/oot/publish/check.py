"""Check runs: what has to be written on a pull request, and the writing of each, with its annotations."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from bot.core import escaping
from bot.core.errors import GitHubRefused, RetryLater
from bot.oot.publish import check_text, rows
from bot.oot.publish.rows import create_once
from bot.oot.verdict import view
from bot.oot.verdict.view import History

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.context import Context
    from bot.github.client import Client
    from bot.oot.publish.check_text import CheckRun
    from bot.oot.publish.tables import CheckRow
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend, FailedTest, Job
    from bot.web.blocks import TestMark

ANNOTATIONS_PER_REQUEST = 50  # GitHub accepts no more at once, and adds each batch to those it has
ANNOTATIONS_MOST = 200  # of one check run
LARGEST_LINE = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class CheckWrite:
    """A check run to be created or updated."""

    check: CheckRun
    row: CheckRow | None  # what was written last
    basis: str
    digest: str
    # ended only because the pull request lost the label, or the backend its allowlist entry
    label_ended: bool
    urgent: bool  # a gate or a backend's verdict: goes first when the rate budget is short
    not_before: int  # epoch milliseconds: updates of one check run are spaced out, except verdicts

    @property
    def check_run_id(self) -> int | None:
        """GitHub's id of the check run to update, None where it is created."""
        return self.row["check_run_id"] if self.row else None


@dataclass(frozen=True, kw_only=True)
class CheckPlan:
    """The writes due on a head, gate and verdicts first, and the number of check runs that need none."""

    writes: tuple[CheckWrite, ...] = ()
    unchanged: int = 0

    @classmethod
    def of(cls, wanted: Sequence[CheckWrite | None]) -> CheckPlan:
        """Make the plan of these writes; None stands for a check run that needs none."""
        writes = [write for write in wanted if write is not None]
        ordered = sorted(writes, key=lambda write: (not write.urgent, write.not_before))
        return cls(writes=tuple(ordered), unchanged=len(wanted) - len(writes))

    def __add__(self, other: CheckPlan) -> CheckPlan:
        """Join two plans, each keeping its order."""
        return CheckPlan(writes=self.writes + other.writes, unchanged=self.unchanged + other.unchanged)


@dataclass(frozen=True, kw_only=True)
class CheckTerms:
    """The settings and the pull request's state that check runs depend on."""

    prefix: str
    names: str  # oot | crcr
    label_prefixes: tuple[str, ...]
    labels: frozenset[str]  # the pull request's
    gate: bool  # a gate has been published on this repository
    interval: int  # milliseconds between two updates of one check run
    demoted: frozenset[str] = frozenset()  # L3 backends that begin none, case folded
    current: bool = True  # on an older head check runs continue, but none begins
    files: frozenset[str] = frozenset()  # changed by the pull request: only there are failed tests annotated
    marks: tuple[TestMark, ...] = ()  # failed tests whose lines are known

    @property
    def gate_name(self) -> str:
        """The gate's name."""
        return check_text.gate_name(self.prefix)


def annotate_backend(
    check: CheckRun, backend: Backend, marks: Iterable[TestMark], files: Collection[str]
) -> CheckRun:
    """Annotate a backend's check run at each failed test's line in `files`."""
    mine = [mark for mark in marks if mark.backend == backend.repo.casefold()]
    return _annotated(check, backend, backend.failing, mine, files)


def annotate_job(
    check: CheckRun, backend: Backend, job: Job, marks: Iterable[TestMark], files: Collection[str]
) -> CheckRun:
    """Annotate a job's check run at each failed test's line in `files`."""
    if not job.red:
        return check
    mine = [mark for mark in marks if mark.backend == backend.repo.casefold() and mark.job == job.name]
    return _annotated(check, backend, [job], mine, files)


def missing_annotations(
    wanted: Sequence[dict[str, Any]], present: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the annotations that a check run on GitHub does not have yet."""
    known = {_identity(annotation) for annotation in present}
    return [annotation for annotation in wanted if _identity(annotation) not in known]


def split_annotations(annotations: Sequence[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    """Split annotations into one batch per request; there is at least one, which may be empty."""
    starts = range(0, max(len(annotations), 1), ANNOTATIONS_PER_REQUEST)
    return [annotations[start : start + ANNOTATIONS_PER_REQUEST] for start in starts]


def changed_file(named: str, files: Collection[str]) -> str | None:
    """Return the changed file that a test report means, None where that is not certain.

    Reports name files by the machine's path or the test folder's: `/builds/project/test/test_ops.py` and `test_ops.py`
    both mean `test/test_ops.py`, the latter only where no other changed file has that name.
    """
    if named in files:
        return named
    if named.startswith("/"):  # the name alone may be that of any other file
        return max(
            (path for path in files if "/" in path and named.endswith(f"/{path}")), key=len, default=None
        )
    below = [path for path in files if path.endswith(f"/{named}")]
    return below[0] if len(below) == 1 else None


async def write_check(context: Context, state: PullState, wanted: CheckWrite) -> None:
    """Create or update one check run and record it."""
    open_client = context.github.client if wanted.urgent else context.github.low_priority
    began = wanted.row["created_at"] if wanted.row else context.clock.now()
    client = open_client(state.repo, since=began, checks="write")
    check_run_id = wanted.check_run_id
    if check_run_id is not None and not await _update(client, check_run_id, wanted):
        async with context.store.transaction() as tx:  # deleted at GitHub: an intent again
            await rows.record_check(tx, wanted.check.external_id, check_run_id=None, digest="")
        check_run_id = None
    if check_run_id is None:
        check_run_id = await _create_once(context, client, state, wanted)
    async with context.store.transaction() as tx:
        await rows.record_check(
            tx,
            wanted.check.external_id,
            check_run_id=check_run_id,
            name=wanted.check.name,
            status=wanted.check.status,
            conclusion=wanted.check.conclusion,
            digest=wanted.digest,
            basis=wanted.basis,
            label_ended=wanted.label_ended,
        )


def write_needed(
    check: CheckRun,
    basis: str,
    row: CheckRow | None,
    terms: CheckTerms,
    *,
    label_ended: bool = False,
    urgent: bool = False,
) -> CheckWrite | None:
    """Return the write that turns a check run into `check`, None when nothing differs.

    `row` is what was written last, None if it has not begun. A verdict is always urgent.
    """
    digest = _digest(check)
    if row is not None and row["digest"] == digest and row["check_run_id"] is not None:
        return None
    concluding = row is None or (row["status"], row["conclusion"]) != (check.status, check.conclusion)
    verdict = check.status == "completed" and concluding  # new wording of the same verdict can wait
    return CheckWrite(
        check=check,
        basis=basis,
        label_ended=label_ended,
        row=row,
        digest=digest,
        urgent=urgent or verdict,
        not_before=0 if verdict or row is None else row["written_at"] + terms.interval,
    )


def _annotated(
    check: CheckRun,
    backend: Backend,
    failing: Iterable[Job],
    marks: Iterable[TestMark],
    files: Collection[str],
) -> CheckRun:
    """Add annotations for tests reported with a line, then for those whose lines test results tell."""
    annotations = [
        _annotation(
            path,
            test.line,
            f"{_name(test)} failed in {view.job_label(job)}",
            test.message,
            level=_level(backend, job),
        )
        for job in failing
        for test in job.failed_tests
        if test.line is not None and (path := _path(test)) in files
    ]
    lines = {(annotation["path"], annotation["start_line"]) for annotation in annotations}
    for mark in marks if files else ():
        path = changed_file(mark.file, files)
        if path is not None and (path, mark.line) not in lines:  # variants of a test fail at one line
            lines.add((path, mark.line))
            title = f"{mark.name} failed in {mark.job}"
            annotations.append(_annotation(path, mark.line, title, mark.message, level=_level(backend, None)))
    return replace(check, annotations=tuple(annotations[:ANNOTATIONS_MOST])) if annotations else check


def _path(test: FailedTest) -> str | None:
    """Return the file of a test reported with a line; the message is never searched for it."""
    if test.file is None or test.line is None or not 0 < test.line <= LARGEST_LINE:
        return None
    return test.file.removeprefix("./")


def _name(test: FailedTest) -> str:
    return f"{test.classname}.{test.name}" if test.classname else test.name


def _level(backend: Backend, job: Job | None) -> str:
    """Return GitHub's level: what blocks merging is a failure, what also fails without the change is a notice."""
    if job and job.history in {History.KNOWN, History.FLAKY}:
        return "notice"
    return "failure" if backend.decides else "warning"


def _annotation(
    path: str | None, line: int, title: str, message: str | None, *, level: str
) -> dict[str, Any]:
    return {
        "path": path,
        "start_line": line,
        "end_line": line,
        "annotation_level": level,
        "title": escaping.title(title),
        "message": escaping.title(message or "failed", limit=escaping.PROSE_LIMIT),
    }


def _identity(annotation: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(annotation.get(name) for name in ("path", "start_line", "title", "message"))


async def _create_once(context: Context, client: Client, state: PullState, wanted: CheckWrite) -> int:
    """Create it, or find what an earlier attempt created before it died or lost the answer."""
    check = wanted.check
    row = {
        "external_id": check.external_id,
        "upstream_repo": state.repo,
        "pr_number": state.number,
        "head_sha": check.head_sha,
        "name": check.name,
        "basis": wanted.basis,
    }
    first, *others = split_annotations(check.annotations)
    async with create_once(context, partial(rows.intend_check, row=row)) as creation:
        earlier = None if creation.fresh else await _find(context, client, wanted)
        created = earlier or await creation.create(partial(_create, client, wanted, first))
    if earlier is None:
        for batch in others:
            await client.patch(client.path(f"check-runs/{created}"), data=_changes(wanted, batch))
    elif not await _update(client, created, wanted):
        raise RetryLater(f"check run {created} was deleted meanwhile", after=1.0)
    return created


async def _find(context: Context, client: Client, wanted: CheckWrite) -> int | None:
    """Return the id of the check run an earlier attempt created, recognised by its name, external_id and our App.

    Attempts of one job share all of these, so recorded ids are skipped.
    """
    body = wanted.check.body()
    url = client.path("commits/{sha}/check-runs{?check_name,filter,app_id,per_page}")
    about = {
        "sha": wanted.check.head_sha,
        "check_name": wanted.check.name,
        "filter": "all",
        "app_id": str(context.github.app_id),
        "per_page": "100",
    }
    ids = [
        int(run["id"])
        async for run in client.getiter(url, about, iterable_key="check_runs")
        if run["external_id"] == body["external_id"] and run["app"]["id"] == context.github.app_id
    ]
    async with context.store.read() as tx:
        known = await rows.recorded_ids(tx, ids)
    return next((identifier for identifier in ids if identifier not in known), None)


async def _create(client: Client, wanted: CheckWrite, batch: Sequence[dict[str, Any]]) -> int:
    created = await client.post(client.path("check-runs"), data=_body(wanted, batch))
    return int(created["id"])


def _changes(wanted: CheckWrite, batch: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the body of an update, without the commit and the external id, which cannot change."""
    body = _body(wanted, batch)
    return {name: value for name, value in body.items() if name not in {"head_sha", "external_id"}}


async def _update(client: Client, check_run_id: int, wanted: CheckWrite) -> bool:
    """Update a check run by id; returns False when it was deleted at GitHub."""
    try:
        for batch in split_annotations(await _not_annotated(client, check_run_id, wanted)):
            await client.patch(client.path(f"check-runs/{check_run_id}"), data=_changes(wanted, batch))
    except GitHubRefused as error:
        if not error.gone:
            raise
        return False
    return True


async def _not_annotated(client: Client, check_run_id: int, wanted: CheckWrite) -> list[dict[str, Any]]:
    """Return the annotations still to be added: GitHub keeps those it has, and would show them twice."""
    if not wanted.check.annotations:
        return []
    url = client.path(f"check-runs/{check_run_id}/annotations{{?per_page}}")
    present = [annotation async for annotation in client.getiter(url, {"per_page": "100"})]
    return missing_annotations(wanted.check.annotations, present)


def _body(wanted: CheckWrite, batch: Sequence[dict[str, Any]]) -> dict[str, Any]:
    body = wanted.check.body()
    return body | {"output": body["output"] | {"annotations": list(batch)}} if batch else body


def _digest(check: CheckRun) -> str:
    """Return the hash of a check run's content."""
    return hashlib.sha256(msgspec.json.encode([check.body(), check.annotations], order="sorted")).hexdigest()
