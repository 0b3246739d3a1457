"""Which failed tests are marked in the changed files? Only those whose file the pull request changes, as reported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.domain import inert, words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.domain.checkrun import CheckRun
    from bot.domain.view import FailedTest, Job

IN_A_REQUEST = 50  # GitHub takes no more at once, and adds each lot to those it has
MOST = 200  # of one check run
LARGEST_LINE = 2**31 - 1


def annotated(check: CheckRun, failing: Iterable[Job], files: Collection[str]) -> CheckRun:
    """Return the check run with an annotation for each failed test that was told with a place in `files`."""
    found = [_annotation(job, test) for job in failing for test in job.failed_tests if _place(test) in files]
    return replace(check, annotations=tuple(found[:MOST])) if found else check


def missing(wanted: Sequence[dict[str, Any]], present: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the annotations that a check run on GitHub does not have yet."""
    there = {_identity(one) for one in present}
    return [one for one in wanted if _identity(one) not in there]


def lots(annotations: Sequence[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    """Return annotations in lots of one request each; at least one, possibly empty."""
    starts = range(0, max(len(annotations), 1), IN_A_REQUEST)
    return [annotations[start : start + IN_A_REQUEST] for start in starts]


def _place(test: FailedTest) -> str | None:
    """Return the file of a test told with a line; never guessed from its message."""
    if test.file is None or test.line is None or not 0 < test.line <= LARGEST_LINE:
        return None
    return test.file.removeprefix("./")


def _annotation(job: Job, test: FailedTest) -> dict[str, Any]:
    name = f"{test.classname}.{test.name}" if test.classname else test.name
    return {
        "path": _place(test),
        "start_line": test.line,
        "end_line": test.line,
        "annotation_level": "failure",
        "title": inert.title(f"{name} failed in {words.job_label(job)}"),
        "message": inert.title(test.message or "failed", limit=inert.PROSE_LIMIT),
    }


def _identity(annotation: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(annotation.get(name) for name in ("path", "start_line", "title", "message"))
