"""Suites and cases as upstream's documents of test results have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bot.ci.test_results.parse.block import FLAKY, NO_TIME, Code, outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.db.exports import Row

TRUNK = re.compile("trunk/[0-9a-f]{40}")
RESULTS = {
    Code.PASSED: "success", Code.XPASSED: "success", Code.XFAILED: "skipped", Code.SKIPPED: "skipped",
    Code.FAILED: "failure", Code.TIMED_OUT: "failure", Code.ERROR: "error", Code.CRASHED: "error",
}  # fmt: skip
SAYS = {
    "failure": "failure",
    "error": "error",
    "skipped": "skipped",
}  # the member with what was said, by result


def is_exported_whole(job: TestJobRow) -> bool:
    """Whether all cases of a job leave: of a trusted branch, or a commit of it that was tested by itself."""
    of_commit = TRUNK.fullmatch(job["head_branch"] or "") is not None and job["event"] == "push"
    return job["backend"] is None and (job["trusted"] or of_commit)


def describe_suite(run: Row, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a job said of a suite."""
    return {
        "classname": one["suite"],
        "file": one["file"],
        "invoking_file": one["invoking_file"] or one["file"],
        **{name: one[name] for name in ("tests", "failures", "errors", "skipped", "successes")},
        "time": one["time_ms"] / 1000,
        **_of_run(run, one["job_id"]),
    }


def describe_failure(run: Row, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case that failed in some attempt."""
    names = (one["file"], one["suite"], one["name"])
    return _case(run, one["job_id"], names, Code(one["outcome"]), one["time_ms"]) | _said(one)


def describe_case(
    run: Row,
    job_id: int,
    names: tuple[str, str, str],
    found: tuple[int, int],
    said: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a case of a block, its code and time, with what is stored of it beside."""
    code, time = found
    outcome = outcome_of(code)
    case = _case(run, job_id, names, outcome, None if time == NO_TIME else time)
    mine = next((one for one in said if one["outcome"] == outcome), None)
    return case | (_said(mine) if mine else {"status": "flaky"} if code & FLAKY else {})


def _case(
    run: Row, job_id: int, names: tuple[str, str, str], outcome: Code, time_ms: int | None
) -> dict[str, Any]:
    file, suite, name = names
    seconds = None if time_ms is None else time_ms / 1000
    result = RESULTS[outcome]
    return {
        "classname": suite,
        "file": file,
        "invoking_file": file,
        "name": name,
        "time": seconds,
        "duration": seconds,
        "result": result,
        "status": outcome.name.lower(),
        **_of_run(run, job_id),
    }


def _said(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a case said, where it is to stand in the document."""
    result = RESULTS[Code(one["outcome"])]
    words = {"type": one["type"], "message": one["message"], "text": one["stack"]}
    found: dict[str, Any] = {"invoking_file": one["invoking_file"] or one["file"], "line": one["line"]}
    if one["flaky"] or (one["failed_attempts"] and result == "success"):
        found["rerun"] = {"message": one["message"], "text": one["stack"]}
    if result in SAYS:
        found[SAYS[result]] = words
    if one["output"]:
        found["system-out"] = {"text": one["output"]}
    if one["properties"]:
        listed = [{"name": name, "value": value} for name, value in one["properties"].items()]
        found["properties"] = {"property": listed}
    return found


def _of_run(run: Row, job_id: int) -> dict[str, Any]:
    return {"job_id": job_id, "workflow_id": run["run_id"], "workflow_run_attempt": run["run_attempt"]}
