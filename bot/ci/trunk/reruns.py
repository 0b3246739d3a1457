"""Where a job can be run again: GitHub's page of it has the button, for people who may write to the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk.cells import CANCELLED, FAILED, character

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.trunk.cells import Run

DAY = 86_400_000
DAYS = 30  # after its first attempt GitHub runs nothing again
WORTH_IT: Collection[str] = FAILED | {CANCELLED}


def pages(runs: Sequence[Run], repository: str, *, now: int) -> dict[str, str]:
    """Return the pages on GitHub where failed and cancelled runs of a column can be repeated, by the jobs' ids.

    `repository` is the address of the repository on GitHub. An attempt that was followed by another one cannot be
    repeated.
    """
    newest: dict[tuple[int, int], int] = {}
    began: dict[int, int] = {}
    for run in runs:
        shard = (run.run_id, run.shard)
        newest[shard] = max(newest.get(shard, 0), run.attempt)
        at = run.started_at or run.completed_at or now
        began[run.run_id] = min(began.get(run.run_id, at), at)
    return {
        run.id: f"{repository}/actions/runs/{run.run_id}/job/{run.id}"
        for run in runs
        if run.id
        and run.run_id
        and character(run.status, run.conclusion) in WORTH_IT
        and run.attempt == newest[run.run_id, run.shard]
        and now - began[run.run_id] < DAYS * DAY
    }
