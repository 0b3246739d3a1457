"""Copies of what the bot stores, in a folder: compared with its database, and a second one rebuilt from them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import TYPE_CHECKING, Any

from bot.demo.scenario import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from bot.demo.environment import BotProcess

ARCHIVE, COPIES = "archive", "copies"
POLL_INTERVAL = 0.5  # seconds
PATIENCE = 60.0  # seconds
WHAT = [
    "records", "deliveries", "oot_workflow_job", "tests", "utilization", "logs", "verdicts", "artifacts", "trunk",
    "lists", "disabled_issues", "disabled_tests_historical", "queue_times", "providers", "selection", "bisects",
    "ossci_uploaded_metrics", "sccache_stats", "benchmark_records", "external_contribution_counts", "contributions",
    "stable_pushes",
]  # fmt: skip
# all tables that deliveries alone make; others hold what backends reported, and what is made of both: docs/sinks.md
RECORDS = "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE c.name = 'merge_state'"
ASKED = "repository"  # the bot also asks GitHub for these: what it answers is no delivery


def options(folder: Path) -> dict[str, str]:
    """Return the bot's options for both layouts."""
    common = {"kind": "objects", "batch_seconds": 1}
    tables = {
        ARCHIVE: common | {"url": f"file://{folder}/{ARCHIVE}", "what": ["deliveries"]},
        COPIES: common | {"url": f"file://{folder}/{COPIES}", "layout": "upstream", "what": WHAT},
    }
    return {"SINKS": json.dumps(tables)}


async def compare(bot: BotProcess) -> list[Finding]:
    """Wait until all is sent, and have the bot compare it with what it stores."""
    expectation = "all copies are sent"
    try:
        async with asyncio.timeout(PATIENCE):
            while await _waiting(bot):  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(POLL_INTERVAL)
    except TimeoutError:
        return [Finding(expectation=expectation, problem=f"{await _waiting(bot)} rows wait")]
    found = [Finding(expectation=expectation)]
    for name in (ARCHIVE, COPIES):
        code, out = await bot.command("sink", "check", name)
        same = f"the copies in {name} are what is stored"
        found.append(Finding(expectation=same, problem=out if code else ""))
    return found


async def _waiting(bot: BotProcess) -> int:
    _, out = await bot.command("sink", "list", "--json")
    return sum(row["waiting"] for row in json.loads(out))


async def rebuild(bot: BotProcess, folder: Path) -> Finding:
    """Rebuild a second database from the archive, once the bot has stopped, and compare the records of both."""
    expectation = "a second database, rebuilt from the archive, holds the same records"
    second = bot.folder / "rebuilt"
    code, out = await bot.command(
        "replay", "--from-objects", f"file://{folder}/{ARCHIVE}", DATA_DIR=str(second)
    )
    if code:
        return Finding(expectation=expectation, problem=out)
    first, again = (_records(place / "ootbot.db") for place in (bot.folder / "data", second))
    differ = sorted(table for table in first.keys() | again.keys() if first.get(table) != again.get(table))
    return Finding(expectation=expectation, problem=f"not the same: {', '.join(differ)}" if differ else "")


def _records(file: Path) -> dict[str, list[Any]]:
    connection = sqlite3.connect(file)
    try:
        names = [name for (name,) in connection.execute(RECORDS) if name != ASKED]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}  # noqa: S608 - our own names
    finally:
        connection.close()
