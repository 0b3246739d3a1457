"""A branch with many commits and jobs, for the grid: 300 columns, and about 1.3 runs of each on every commit."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from bot.ingest.tables import records
from bot.jobs import column_changes, daily_sums
from bot.jobs.branches import BRANCHES
from bot.jobs.tables import branch_commit, ci_cell, ci_column, ci_commit
from bot.queue import sums
from bot.queue.sums import DAY, SumPlace
from bot.queue.tasks import ClaimedTask, Task

if TYPE_CHECKING:
    import sqlite3

    from bot.context import Context

REPOSITORY, COLUMNS, RUNS = 1, 300, 400  # RUNS: of one commit
PLATFORMS = (
    "linux-jammy-py3.10-gcc11",
    "linux-jammy-cuda12.8-py3.10",
    "macos-py3-arm64",
    "win-vs2022-cpu-py3",
    "linux-rocm-py3.10",
)
WORKFLOWS = (
    "pull", "trunk", "periodic", "slow", "inductor", "linux-aarch64", "rocm", "xpu", "docs", "docker", "windows", "mac",
)  # fmt: skip
HOUR = 3_600_000
APART = HOUR // 2  # between two commits
SUCCESS, FAILURE, COMPLETED = 1, 2, 3


def paths(upstream: str) -> dict[str, str]:
    """The addresses that are measured."""
    return {
        "grid": f"/hud/{upstream}/main?groups=0",
        "grid_by_group": f"/hud/{upstream}/main?group=Lint",
        "grid_json": f"/api/ci/hud/{upstream}/main",
        "grid_json_500": f"/api/ci/hud/{upstream}/main?per=500",
        "last_good": f"/api/ci/{upstream}/last-good",
    }


def write(plain: sqlite3.Connection, insert, cells: int, now: int) -> None:
    """Write as many commits as have that many runs; one job fails everywhere, so that none of them is good."""
    chance = random.Random(2)
    plain.execute("BEGIN")
    insert(plain, ci_column, [column(number, now // DAY) for number in range(COLUMNS)])
    plain.execute("COMMIT")
    commits = max(cells // RUNS, 1)
    for start in range(0, commits, 100):
        plain.execute("BEGIN")
        for number in range(start, min(start + 100, commits)):
            at = now - (commits - number) * APART
            insert(plain, branch_commit, [commit(number, at)])
            insert(plain, ci_commit, [{"repository_id": REPOSITORY, "head_sha": sha(number), "mark": 0}])
            insert(
                plain, records["workflow_run"], [run(number, which, at) for which in range(len(WORKFLOWS))]
            )
            insert(plain, ci_cell, jobs(chance, number, at))
        plain.execute("COMMIT")
    plain.execute("ANALYZE")


async def count(context: Context, cells: int) -> None:
    """Count the days of the branch, and record how its columns changed."""
    now = context.clock.now()
    days = {(now - number * APART) // DAY for number in range(cells // RUNS + 2)}
    for day in sorted(days):
        place = SumPlace((REPOSITORY, "main"), day)
        counted = await daily_sums.count_branch(context, place)
        async with context.store.transaction() as tx:
            await sums.write(tx, BRANCHES, place, counted)
    changes = ClaimedTask(
        id=0,
        kind=column_changes.CHANGES_TASK,
        key=f"{REPOSITORY}/main",
        attempts=1,
        created_at=now,
        cause=None,
    )
    await column_changes.record_changes(context, Task(changes))


def sha(number: int) -> str:
    return f"{number * 2654435761 % 2**32:08x}{number:032x}"


def column(number: int, seen: int) -> dict:
    """Every tenth job is a linter's, the others are tests of five platforms."""
    name = f"lint {number}" if number % 10 == 0 else f"{PLATFORMS[number % 5]} / test (config_{number})"
    return {
        "id": number + 1, "repository_id": REPOSITORY, "workflow": WORKFLOWS[number % len(WORKFLOWS)],
        "job": name, "base_name": name, "config": f"config_{number}", "flags": "",
        "seen": seen,
    }  # fmt: skip


def commit(number: int, at: int) -> dict:
    return {
        "repository_id": REPOSITORY, "branch": "main", "sha": sha(number),
        "parent": sha(number - 1) if number else None, "replaces": None, "at": at, "author": f"person{number % 40}",
        "title": f"Multiply small matrices without a copy, part {number} (#{number})", "pr_number": number,
        "folded": 0, "gone": False,
    }  # fmt: skip


def run_id(number: int, which: int) -> int:
    return number * len(WORKFLOWS) + which + 1


def run(number: int, which: int, at: int) -> dict:
    """One workflow run of a commit."""
    return {
        "repository_id": REPOSITORY, "repo": "org/upstream", "received_at": at, "id": run_id(number, which),
        "run_attempt": 1, "name": WORKFLOWS[which], "event": "push", "status": "completed", "conclusion": "failure",
        "head_branch": "main", "head_sha": sha(number), "created_at": at, "updated_at": at + HOUR,
        "merge_state": "{}",
    }  # fmt: skip


def jobs(chance: random.Random, number: int, at: int) -> list[dict]:
    """The first run of every column, and a second one of a hundred of them: shards and retries."""
    found = []
    for place in range(RUNS):
        which, again = place % COLUMNS, place >= COLUMNS
        sharded = which % 6 == 0
        failed = which == 7 or chance.random() < 0.02
        found.append({
            "repository_id": REPOSITORY, "head_sha": sha(number), "column_id": which + 1,
            "job_id": number * RUNS + place + 1, "numbered_column_id": which + 1 if sharded else None,
            "run_id": run_id(number, which % len(WORKFLOWS)), "attempt": 1 if sharded or not again else 2,
            "shard": (2 if again else 1) if sharded else 0, "shards": 2 if sharded else 0, "state": COMPLETED,
            "conclusion": FAILURE if failed else SUCCESS, "queued_at": at, "started_at": at + 60_000,
            "completed_at": at + HOUR, "runner_label": "linux.4xlarge",
            "signature": "ab12" if failed else None,
            "line": "AssertionError: tensors are not close: 3 of 4096 elements differ" if failed else None,
            "tests_failed": None,
        })  # fmt: skip
    return found
