"""What is known of each commit of a search, from every run of the job there, whoever asked for it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bot.oot.culprits.search import VAIN_MOST, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.trunk.tables import CommitRow
    from bot.oot.culprits.job_runs import JobRun
    from bot.oot.culprits.tables import StepRow

VAIN = frozenset({"no_result", "silent"})  # outcomes of steps


def observe(commits: Sequence[CommitRow], runs: Iterable[JobRun], steps: Iterable[StepRow]) -> list[Seen]:
    """Return what is known of some commits, oldest first."""
    by_commit: defaultdict[str, list[JobRun]] = defaultdict(list)
    for run in runs:
        by_commit[run.sha].append(run)
    stepped: defaultdict[str, list[StepRow]] = defaultdict(list)
    for step in steps:
        stepped[step["sha"]].append(step)
    return [_seen(row["sha"], by_commit[row["sha"]], stepped[row["sha"]]) for row in commits]


def _seen(sha: str, runs: Sequence[JobRun], steps: Sequence[StepRow]) -> Seen:
    mine = {step["dispatch_id"] for step in steps if step["dispatch_id"]}
    good = sum(run.word == "good" for run in runs)
    bad = sum(run.word == "bad" for run in runs)
    return Seen(
        sha=sha,
        good=good,
        bad=bad,
        asked=any(step["outcome"] is None for step in steps),
        pending=any(run.word == "pending" and run.dispatch_id not in mine for run in runs),
        vain=sum(step["outcome"] in VAIN for step in steps),
        silent=sum(step["outcome"] == "silent" for step in steps),
        unbuildable=not good and not bad and any(run.word == "unbuildable" for run in runs),
    )


def silent_commits(seen: Iterable[Seen]) -> int:
    """Return on how many commits nothing was answered, as often as is tried."""
    return sum(one.silent >= VAIN_MOST for one in seen)
