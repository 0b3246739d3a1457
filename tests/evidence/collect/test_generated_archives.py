"""Two thousand generated archives: each ends in a state with a reason, and none costs the worker memory or time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from bot.features import FEATURES
from bot.jobs.collection import FINAL_STATES
from bot.jobs.settings import CollectSettings
from tests.evidence.collect.generated import hostile_files
from tests.evidence.collect.test_collecting import fetches
from tests.harness import UPSTREAM
from tests.serving import SQLITE

COUNT, BATCH = 2_000, 100
GROWS_MOST = 40 * 1024 * 1024  # bytes of the worker
STILL_MOST = 0.1  # seconds of processor time between two turns of the loop
PAGE = 4096


@pytest.fixture
def features():
    """All that the program has: the parsers of test reports are the real ones."""
    return FEATURES


@pytest.fixture
def collecting():
    return CollectSettings(ci_calls_per_hour=1_000_000)


async def longest_turn(found):
    """Keep the longest time that the loop's thread worked without coming back."""
    while True:
        before = time.thread_time()
        await asyncio.sleep(0)
        found[0] = max(found[0], time.thread_time() - before)
        await asyncio.sleep(0.005)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.nightly
@SQLITE
async def test_generated_archives_end_in_a_state_with_a_reason(bot, github):
    files = await asyncio.to_thread(hostile_files, COUNT)
    assert len(files) == COUNT
    folder, longest = bot.context.settings.data_dir, [0.0]
    states, memory, disk = {}, 0, 0
    watching = asyncio.create_task(longest_turn(longest))
    for start in range(0, len(files), BATCH):
        run = await github.start_run(UPSTREAM, event="pull_request")
        made = [
            github.add_artifact(run, f"junit-{start + n}", one)
            for n, one in enumerate(files[start : start + BATCH])
        ]
        await github.finish_run(run, "failure")
        await bot.settle(horizon=700)  # an empty answer is asked for again
        if not start:  # what every import and the first rows cost
            memory, disk = resident(), size_of(folder)
        states |= {one.id: (await fetches(bot))["artifact", one.id] for one in made}
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert {state for state, _ in states.values()} <= {state.value for state in FINAL_STATES}
    assert all(reason for state, reason in states.values() if state != "parsed")
    assert {"parsed", "broken", "refused"} <= {state for state, _ in states.values()}
    assert not [reason for _, reason in states.values() if reason and "parser failed" in reason]
    assert resident() - memory <= GROWS_MOST
    assert size_of(folder) - disk <= 3 * sum(map(len, files[BATCH:]))
    assert longest[0] < STILL_MOST
