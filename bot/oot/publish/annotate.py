"""Annotations of check runs: failed tests at their lines of files that the pull request changes. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.core import escaping
from bot.oot.verdict import words
from bot.oot.verdict.view import History

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.oot.publish.check_run_text import CheckRun
    from bot.oot.verdict.view import Backend, FailedTest, Job
    from bot.web.blocks import TestMark

PER_REQUEST = 50  # GitHub accepts no more at once, and adds each batch to those it has
MOST = 200  # of one check run
LARGEST_LINE = 2**31 - 1


def annotate_backend(
    check: CheckRun, backend: Backend, marks: Iterable[TestMark], files: Collection[str]
) -> CheckRun:
    """Return a backend's check run with an annotation for each failed test with a line in `files`."""
    mine = [mark for mark in marks if mark.backend == backend.repo.casefold()]
    return _annotated(check, backend, backend.failing, mine, files)


def annotate_job(
    check: CheckRun, backend: Backend, job: Job, marks: Iterable[TestMark], files: Collection[str]
) -> CheckRun:
    """Return a job's check run with an annotation for each failed test with a line in `files`."""
    if not job.red:
        return check
    mine = [mark for mark in marks if mark.backend == backend.repo.casefold() and mark.job == job.name]
    return _annotated(check, backend, [job], mine, files)


def missing_annotations(
    wanted: Sequence[dict[str, Any]], present: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the annotations that a check run on GitHub does not have yet."""
    known = {_identity(one) for one in present}
    return [one for one in wanted if _identity(one) not in known]


def split_annotations(annotations: Sequence[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    """Return annotations in batches of one request each; at least one batch, which may be empty."""
    starts = range(0, max(len(annotations), 1), PER_REQUEST)
    return [annotations[start : start + PER_REQUEST] for start in starts]


def _annotated(
    check: CheckRun,
    backend: Backend,
    failing: Iterable[Job],
    marks: Iterable[TestMark],
    files: Collection[str],
) -> CheckRun:
    """Add what backends reported with a line, then what their reports of tests say of other lines."""
    found = [
        _annotation(
            path,
            test.line,
            f"{_name(test)} failed in {words.job_label(job)}",
            test.message,
            level=_level(backend, job),
        )
        for job in failing
        for test in job.failed_tests
        if test.line is not None and (path := _path(test)) in files
    ]
    lines = {(one["path"], one["start_line"]) for one in found}
    for mark in marks if files else ():
        path = changed_file(mark.file, files)
        if path is not None and (path, mark.line) not in lines:  # variants of a test fail at one line
            lines.add((path, mark.line))
            title = f"{mark.name} failed in {mark.job}"
            found.append(_annotation(path, mark.line, title, mark.message, level=_level(backend, None)))
    return replace(check, annotations=tuple(found[:MOST])) if found else check


def changed_file(named: str, files: Collection[str]) -> str | None:
    """Return which of the changed files a report of tests means, None where that is not certain.

    Reports name files as the machine or the folder of tests does: `/builds/project/test/test_ops.py` and `test_ops.py`
    are both `test/test_ops.py`, the latter only where no other changed file is called so.
    """
    if named in files:
        return named
    if named.startswith("/"):  # the name alone may be that of any other file
        return max((one for one in files if "/" in one and named.endswith(f"/{one}")), key=len, default=None)
    below = [one for one in files if one.endswith(f"/{named}")]
    return below[0] if len(below) == 1 else None


def _path(test: FailedTest) -> str | None:
    """Return the file of a test reported with a line; it is never guessed from the message."""
    if test.file is None or test.line is None or not 0 < test.line <= LARGEST_LINE:
        return None
    return test.file.removeprefix("./")


def _name(test: FailedTest) -> str:
    return f"{test.classname}.{test.name}" if test.classname else test.name


def _level(backend: Backend, job: Job | None) -> str:
    """Return GitHub's level: what blocks merging is a failure, and what also fails without the change a notice."""
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
