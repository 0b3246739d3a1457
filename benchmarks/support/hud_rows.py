"""The rows that the pages of `bench hud` are about: dispatches and jobs of 200 backends over 90 days, and a branch."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from benchmarks.support import trunk
from benchmarks.support.load import SECRET
from bot.app import make_context
from bot.core.settings import Settings
from bot.demo.github.auth import private_key
from bot.ingest.tables import records, repository_name
from bot.oot.allowlist.versions import refresh
from bot.oot.results import jobs
from bot.oot.results.tables import oot_dispatch, oot_workflow_job
from bot.oot.statistics import daily_sums
from bot.oot.statistics.tables import oot_day
from bot.oot.verdict.comparison import oot_compared
from bot.queue import sums
from bot.queue.sums import SumPlace
from bot.queue.tasks import task

UPSTREAM, SHA = "org/upstream", "{:040x}"
BACKENDS, DAYS, DAY = 200, 90, 86_400_000
WIDE = 30  # jobs of the first backend; the others have two
PULL = 7  # the number of the newest pull request; older ones count up from there
HEADS = 3  # of a pull request
OPEN = 250  # newest pull requests; of the newest of these every twentieth backend has not answered yet
AWAITED = 10
TRUNK = "c" * 40  # a pushed commit that every backend tested


def backend(number: int) -> str:
    return f"lab{number % 17}/backend-{number:03}"


def allowlist() -> str:
    lines = {2: [], 3: [], 4: []}
    for number in range(BACKENDS):
        level = 2 if number % 4 else 3 if number % 8 else 4
        lines[level].append(number)
    text = "L2:\n" + "".join(f"  - {backend(number)}: [on{number}, call{number}]\n" for number in lines[2])
    for level in (3, 4):
        text += f"L{level}:\n" + "".join(f"  dev{n}: {{{backend(n)}: [on{n}]}}\n" for n in lines[level])
    return text


def settings(folder: str) -> Settings:
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / "allowlist.yml").write_text(allowlist())
    return Settings(
        app_id=1, webhook_secret=(SECRET,), private_key=private_key(), upstream_repo=(UPSTREAM,),
        github_api_url="http://127.0.0.1:9", allowlist=str(path / "allowlist.yml"), data_dir=path, port=1,
    )  # fmt: skip


async def fill(folder: str, rows: int, cells: int) -> None:
    """Write the rows as reports would have left them, and the days they add up to."""
    chosen = settings(folder)
    async with make_context(chosen) as context:
        await refresh(context)
        now = context.clock.now()
        write_rows(chosen.data_dir / "ootbot.db", rows, cells, now)
        for day in days(now):
            await count_backends(context, day)
        await trunk.count(context, cells)
        async with context.store.transaction() as tx:
            await tx.run(sa.delete(task))  # as a bot leaves it that has published all of this


async def count_backends(context, day: int) -> None:
    """Write the daily sums of all backends, as tasks would one by one."""
    async with context.store.transaction() as tx:
        found = await daily_sums.count_days(tx, [(day, backend(n)) for n in range(BACKENDS)])
        for key in {one.backend_key for one in found}:
            rows = [daily_sums.as_row(one, tx.now) for one in found if one.backend_key == key]
            await sums.write(tx, daily_sums.BACKENDS, SumPlace((key,), day), {oot_day: rows})


def days(now: int) -> range:
    """Every day that the rows may fall on."""
    return range(now // DAY - DAYS - 1, now // DAY + 1)


def write_rows(path: Path, rows: int, cells: int, now: int) -> None:
    """Write pull requests' heads until there are so many rows, one pushed commit, and a branch."""
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("PRAGMA synchronous=OFF")
    heads = max(rows // ((BACKENDS - 1) * 2 + WIDE), 1)
    chance = random.Random(1)
    for start in range(0, heads, 50):
        plain.execute("BEGIN")
        for head in range(start, min(start + 50, heads)):
            at = now - 120_000 - (heads - 1 - head) * (DAYS * DAY // heads)
            dispatches, reported = head_rows(chance, head, heads, at)
            insert(plain, oot_dispatch, dispatches)
            insert(plain, oot_workflow_job, reported)
            if (heads - 1 - head) % HEADS == 0:
                insert(plain, records["pull_request"], [pull_row(head, heads, at)])
                insert(
                    plain, oot_compared, [compared(row) for row in reported if row["conclusion"] == "failure"]
                )
        plain.execute("COMMIT")
    plain.execute("BEGIN")
    for table, rows in zip(
        (oot_dispatch, oot_workflow_job), head_rows(chance, heads, heads, now), strict=True
    ):
        insert(plain, table, [row | PUSHED for row in rows])
    insert(plain, records["repository"], [PUBLIC])
    insert(plain, repository_name, [{"repository_id": 1, "name": UPSTREAM.casefold()}])
    plain.execute("COMMIT")
    trunk.write(plain, insert, cells, now)
    plain.close()


PUBLIC = {
    "repository_id": 1,
    "id": 1,
    "repo": UPSTREAM,
    "full_name": UPSTREAM,
    "private": False,
    "default_branch": "main",
    "received_at": 0,
    "merge_state": "{}",
}
PUSHED = {"pr_number": None, "event_type": "push", "head_sha": TRUNK}


def insert(plain, table, rows) -> None:
    names = list(rows[0])
    marks = ", ".join("?" * len(names))
    plain.executemany(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})",
        [tuple(row.values()) for row in rows],
    )


def head_rows(chance, head: int, heads: int, at: int) -> tuple[list, list]:
    """One head of a pull request: a dispatch to every backend, and their jobs."""
    back = (heads - 1 - head) // HEADS
    number, sha = PULL + back, SHA.format(head)
    dispatches, reported = [], []
    for n in range(BACKENDS):
        name, level = backend(n), 2 if n % 4 else 3 if n % 8 else 4
        made = f"{head}-{n}"
        silent = back < AWAITED and n % 20 == 3
        dispatches.append({
            "id": made, "delivery_id": f"d{head}", "source_guid": f"d{head}", "upstream_repo": UPSTREAM,
            "event_type": "pull_request", "action": "synchronize", "pr_number": number, "head_sha": sha, "labels": "[]",
            "backend": name, "backend_key": name, "level": level, "device": f"dev{n}" if level > 2 else None,
            "state": "sent", "attempts": 1, "created_at": at, "dispatched_at": at,
            "heard_at": None if silent else at, "token_jti": "x",
        })  # fmt: skip
        for job in range(0 if silent else WIDE if n == 0 else 2):
            passed = chance.random() < 0.93 - (n % 10) / 50
            failed = (
                None
                if passed
                else json.dumps([{"name": f"test_{chance.randint(1, 40)}", "message": "3 != 4"}] * 2)
            )
            row = jobs.BLANK | {
                "dispatch_id": made, "status": "completed", "conclusion": "success" if passed else "failure",
                "downstream_repo": name, "upstream_repo": UPSTREAM, "pr_number": number, "head_sha": sha,
                "delivery_id": f"d{head}", "workflow_name": "CI", "job_name": f"job {job}", "run_id": f"9{made}",
                "run_attempt": 1, "source": "callback", "queue_time": chance.uniform(5, 300),
                "execution_time": chance.uniform(60, 7_000), "started_at": at, "completed_at": at + 60_000,
                "failed_tests": None if passed else 2, "failed_tests_json": failed, "passed_tests": 800,
                "downstream_repo_level": level, "event_type": "pull_request", "flags": "{}", "received_at": at,
                "updated_at": at + 60_000, "workflow_run_url": f"https://github.com/{name}/actions/runs/9{head}",
            }  # fmt: skip
            reported.append(row | {"job_key": jobs.job_key(row)})
    return dispatches, reported


def compared(row: dict) -> dict:
    """What publishing has found out about a failed job and keeps."""
    return {
        "job_key": row["job_key"], "completed_at": row["completed_at"], "history": "known",
        "url": row["workflow_run_url"], "elsewhere": True,
    }  # fmt: skip


def pull_row(head: int, heads: int, at: int) -> dict:
    """The pull request that a head is the newest of."""
    back = (heads - 1 - head) // HEADS
    number = PULL + back
    return {
        "repository_id": 1, "repo": UPSTREAM, "received_at": at, "id": number, "number": number, "labels": "[]",
        "title": f"Multiply small matrices without a copy, part {number}", "user_login": f"person{number % 40}",
        "state": "open" if back < OPEN else "closed", "draft": False, "merged": back >= OPEN, "base_ref": "main",
        "head_sha": SHA.format(head), "created_at": at, "updated_at": at, "merge_state": "{}",
    }  # fmt: skip
