"""How does upstream's own CI stand on a commit? Its workflow jobs and the checks of others, each once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.domain.view import RED_CONCLUSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = dict[str, Any]
_SAID = {"success": "passed", "failure": "failed", "in_progress": "running"}  # the words for backends, too


@dataclass(frozen=True, kw_only=True)
class Own:
    """One workflow job, or one check run that is none."""

    group: str  # the workflow, or the app
    name: str
    status: str
    conclusion: str | None
    url: str | None
    attempt: int | None = None
    seconds: float | None = None
    title: str = ""

    @property
    def tone(self) -> str:
        """The colour and sign it is shown with."""
        if self.status != "completed":
            return "wait"
        if self.conclusion in RED_CONCLUSIONS:
            return "bad"
        return "good" if self.conclusion == "success" else "idle"

    @property
    def said(self) -> str:
        """What it says in one word."""
        word = (self.conclusion if self.status == "completed" else self.status) or "unknown"
        return _SAID.get(word, word.replace("_", " "))


def own(jobs: Iterable[Row], checks: Iterable[Row], *, ours: int) -> list[Own]:
    """Return upstream's own, the red ones first; `ours` is our App: what it says stands elsewhere."""
    latest: dict[tuple[Any, ...], Row] = {}
    identifiers = set()
    for row in jobs:
        identifiers.add(row["id"])
        name = (row["workflow_name"], row["name"], row["run_id"])
        known = latest.get(name)
        if known is None or (row["run_attempt"] or 1) >= (known["run_attempt"] or 1):
            latest[name] = row
    newest: dict[tuple[Any, ...], Row] = {}
    for row in checks:
        # a workflow job is a check run of the same id
        if row["id"] not in identifiers and row["app_id"] != ours:
            newest[row["app_slug"], row["name"]] = row
    found = [*map(_job, latest.values()), *map(_check, newest.values())]
    order = {"bad": 0, "wait": 1, "good": 2, "idle": 3}
    return sorted(found, key=lambda one: (order[one.tone], one.group, one.name))


def running(found: Iterable[Own]) -> bool:
    """Return whether any of them is still to conclude."""
    return any(one.tone == "wait" for one in found)


def counts(found: Sequence[Own]) -> str:
    """Return how they stand, as in "3 of 4 passed, 1 failed"."""
    tones = Counter(one.tone for one in found)
    parts = [f"{tones['good']} of {len(found)} passed"]
    parts += [f"{tones['bad']} failed"] if tones["bad"] else []
    parts += [f"{tones['wait']} running"] if tones["wait"] else []
    return ", ".join(parts)


def _job(row: Row) -> Own:
    return Own(
        group=row["workflow_name"] or "workflow",
        name=row["name"] or "",
        status=row["status"] or "",
        conclusion=row["conclusion"],
        url=row["html_url"],
        attempt=row["run_attempt"],
        seconds=_seconds(row),
    )


def _check(row: Row) -> Own:
    return Own(
        group=row["app_slug"] or "check run",
        name=row["name"] or "",
        status=row["status"] or "",
        conclusion=row["conclusion"],
        url=row["html_url"],
        seconds=_seconds(row),
        title=row["output_title"] or "",
    )


def _seconds(row: Row) -> float | None:
    if row["started_at"] is None or row["completed_at"] is None:
        return None
    return float(max(0, row["completed_at"] - row["started_at"])) / 1000
