"""Upstream's own CI on a commit: its workflow jobs and the check runs of other Apps, each once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.verdict.verdict import RED_CONCLUSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ingest.rows import CheckRunRow, WorkflowJobRow

_WORDS = {"success": "passed", "failure": "failed", "in_progress": "running"}  # as for backends


@dataclass(frozen=True, kw_only=True)
class UpstreamCheck:
    """A workflow job, a job on another CI, or a check run that belongs to none."""

    group: str  # the workflow, or the app
    name: str
    status: str
    conclusion: str | None
    url: str | None
    attempt: int | None = None
    seconds: float | None = None
    queued: float | None = None  # seconds that a job waited for its runner
    title: str = ""
    job_id: int | None = None  # GitHub's, of a workflow job; of its run the next
    run_id: int | None = None

    @property
    def tone(self) -> str:
        """The colour and sign it is shown with."""
        if self.status != "completed":
            return "wait"
        if self.conclusion in RED_CONCLUSIONS:
            return "bad"
        return "good" if self.conclusion == "success" else "idle"

    @property
    def outcome(self) -> str:
        """Its outcome in one word."""
        word = (self.conclusion if self.status == "completed" else self.status) or "unknown"
        return _WORDS.get(word, word.replace("_", " "))


def merge_checks(
    jobs: Iterable[WorkflowJobRow],
    checks: Iterable[CheckRunRow],
    others: Iterable[UpstreamCheck] = (),
    *,
    ours: int,
) -> list[UpstreamCheck]:
    """Return upstream's own checks, the red ones first, without those of our App, whose id is `ours`.

    `others` are its jobs on other CIs.
    """
    latest: dict[tuple[str | None, str | None, int | None], WorkflowJobRow] = {}
    identifiers = set()
    for row in jobs:
        identifiers.add(row["id"])
        name = (row["workflow_name"], row["name"], row["run_id"])
        known = latest.get(name)
        if known is None or (row["run_attempt"] or 1) >= (known["run_attempt"] or 1):
            latest[name] = row
    newest: dict[tuple[str | None, str | None], CheckRunRow] = {}
    for check in checks:
        # every workflow job is also a check run, with the same id
        if check["id"] not in identifiers and check["app_id"] != ours:
            newest[check["app_slug"], check["name"]] = check
    found = [*map(_job, latest.values()), *others, *map(_check, newest.values())]
    order = {"bad": 0, "wait": 1, "good": 2, "idle": 3}
    return sorted(found, key=lambda one: (order[one.tone], one.group, one.name))


def list_overtaken(jobs: Iterable[WorkflowJobRow]) -> list[tuple[UpstreamCheck, UpstreamCheck]]:
    """Return the failed attempts of jobs that ran again, each with the latest attempt."""
    attempts: dict[tuple[str | None, str | None, int | None], list[WorkflowJobRow]] = {}
    for row in jobs:
        attempts.setdefault((row["workflow_name"], row["name"], row["run_id"]), []).append(row)
    found = []
    for rows in attempts.values():
        newest = max(rows, key=lambda row: row["run_attempt"] or 1)
        before = [_job(row) for row in rows if (row["run_attempt"] or 1) < (newest["run_attempt"] or 1)]
        found += [(one, _job(newest)) for one in before if one.tone == "bad"]
    return found


def running(found: Iterable[UpstreamCheck]) -> bool:
    """Return whether any of them is unfinished."""
    return any(one.tone == "wait" for one in found)


def counts(found: Sequence[UpstreamCheck]) -> str:
    """Return their counts, as in "3 of 4 passed, 1 failed"."""
    tones = Counter(one.tone for one in found)
    parts = [f"{tones['good']} of {len(found)} passed"]
    parts += [f"{tones['bad']} failed"] if tones["bad"] else []
    parts += [f"{tones['wait']} running"] if tones["wait"] else []
    return ", ".join(parts)


def _job(row: WorkflowJobRow) -> UpstreamCheck:
    return UpstreamCheck(
        group=row["workflow_name"] or "workflow",
        name=row["name"] or "",
        status=row["status"] or "",
        conclusion=row["conclusion"],
        url=row["html_url"],
        attempt=row["run_attempt"],
        seconds=_seconds(row),
        queued=seconds_between(row["created_at"], row["started_at"]),
        job_id=row["id"],
        run_id=row["run_id"],
    )


def _check(row: CheckRunRow) -> UpstreamCheck:
    return UpstreamCheck(
        group=row["app_slug"] or "check run",
        name=row["name"] or "",
        status=row["status"] or "",
        conclusion=row["conclusion"],
        url=row["html_url"],
        seconds=_seconds(row),
        title=row["output_title"] or "",
    )


def _seconds(row: WorkflowJobRow | CheckRunRow) -> float | None:
    return seconds_between(row["started_at"], row["completed_at"])


def seconds_between(earlier: int | None, later: int | None) -> float | None:
    """Return the seconds from one time to another, None where one is not known."""
    return None if earlier is None or later is None else float(max(0, later - earlier)) / 1000
