"""How long does a search take over a million rows, on both databases?"""

import random
import statistics
import time
from itertools import islice
from urllib.parse import quote

import pytest
import sqlalchemy as sa
import structlog

from bot.db.word_index import title, word, words_of
from bot.evidence.logs.tables import PUBLIC, ci_signature
from bot.evidence.tests.tables import test, test_class
from bot.ingest.tables import records
from bot.jobs.tables import branch_commit, ci_column, trunk_branch
from bot.oot.statistics.tables import oot_job_name
from tests.harness import UPSTREAM, UPSTREAM_ID
from tests.jobs.branch import deliver, push

PULLS, COMMITS, FAILURES, TESTS = (
    100_000,
    60_000,
    40_000,
    400_000,
)  # with the words of titles over a million rows
MOST = 0.1  # seconds, of 95 in 100 searches
EACH = 3
VERBS = ("Fix", "Add", "Remove", "Speed up", "Document", "Revert", "Refactor", "Fuse", "Test", "Support")
THINGS = [
    f"{kind}{at}" for kind in ("conv", "matmul", "kernel", "layout", "stream", "dtype") for at in range(500)
]
SEARCHES = (
    "12345", "#99999", "Fix", "fix conv", "fix conv123", "conv", "matmul77 speed", "author17", "zzz nothing", "te", "test_",
    "test_conv123", "conv123", "TestConv4", "TestConv4.test_conv", "release", "main", "linux-job-17", "device-job-17", "build", "a", "e",
    "out of memory", "RuntimeError conv1", "npu", "pytorch", "deadbeef", f"{77:040x}", f"{77:08x}", "Fix the conv12 layout4",
)  # fmt: skip


async def fill(bot, table, rows):
    waiting = iter(rows)
    while some := list(islice(waiting, 5_000)):
        async with bot.store.transaction() as tx:
            await tx.run(sa.insert(table), some)


def sentence(at):
    drawn = random.Random(at)
    return (
        f"{drawn.choice(VERBS)} the {drawn.choice(THINGS)} of {drawn.choice(THINGS)} (#{at}) author{at % 500}"
    )


def titled():
    """Kind, owner, ref and text of all titles."""
    yield from (("pull", UPSTREAM_ID, str(at), sentence(at)) for at in range(1, PULLS + 1))
    yield from (("commit", UPSTREAM_ID, f"{at:040x}", sentence(at)) for at in range(1, COMMITS + 1))
    yield from (
        ("failure", 0, f"{at:064x}", f"RuntimeError: {THINGS[at % 3_000]} out of memory {at}")
        for at in range(FAILURES)
    )


async def grow(bot):
    columns = [column.name for column in records["pull_request"].columns if not column.nullable]
    blank = {
        "repository_id": UPSTREAM_ID,
        "repo": UPSTREAM,
        "received_at": bot.clock.now(),
        "merge_state": {},
    }
    assert set(columns) <= {*blank, "id"}
    await fill(bot, records["pull_request"], (
        {**blank, "id": 10**9 + at, "number": at, "title": sentence(at), "state": "closed", "user_login": f"author{at % 500}"}
        for at in range(2, PULLS + 1)
    ))  # fmt: skip
    await fill(bot, branch_commit, (
        {"repository_id": UPSTREAM_ID, "branch": "main", "sha": f"{at:040x}", "at": at, "title": sentence(at),
         "author": f"author{at % 500}", "folded": 0, "gone": False, "listed": True}
        for at in range(1, COMMITS + 1)
    ))  # fmt: skip
    await fill(bot, ci_signature, (
        {"signature": f"{at:064x}", "family": PUBLIC, "first_at": 1, "last_at": at, "title": "x", "rule": "r", "kind": "k",
         "jobs_total": 1}
        for at in range(FAILURES)
    ))  # fmt: skip
    await fill(bot, trunk_branch, (
        {"repository_id": UPSTREAM_ID, "branch": f"gh/author{at % 500}/{at}/head", "pushed_at": at, "deleted_at": 0}
        for at in range(20_000)
    ))  # fmt: skip
    await fill(bot, ci_column, (
        {"repository_id": UPSTREAM_ID, "workflow": "pull", "job": f"linux-job-{at} / build", "base_name": f"linux-job-{at}",
         "config": "", "flags": ""}
        for at in range(10_000)
    ))  # fmt: skip
    await fill(bot, oot_job_name, (
        {"backend_key": f"org/backend-{at % 40}", "upstream_key": UPSTREAM.lower(), "workflow": "CI",
         "job": f"device-job-{at} / build", "backend": f"org/backend-{at % 40}", "last_at": at}
        for at in range(10_000)
    ))  # fmt: skip
    await fill(bot, test_class, (
        {"id": at, "repository_id": UPSTREAM_ID, "file": f"test/test_{at}.py", "suite": f"TestConv{at}", "last_at": 1}
        for at in range(1, 5_000)
    ))  # fmt: skip
    await fill(bot, test, (
        {"id": at, "repository_id": UPSTREAM_ID, "class_id": at % 4_999 + 1, "digest": at.to_bytes(16, "big"), "canonical": at,
         "name": f"test_{THINGS[at % 3_000]}_{at}_cuda_float32", "first_at": 1, "last_at": 1}
        for at in range(1, TESTS + 1)
    ))  # fmt: skip
    every = list(enumerate(titled(), start=1_000))
    await fill(bot, title, (
        {"id": at, "kind": kind, "repository_id": owner, "ref": ref, "text": text} for at, (kind, owner, ref, text) in every
    ))  # fmt: skip
    await fill(bot, word, (
        {"kind": kind, "word": one, "title_id": at} for at, (kind, _, _, text) in every for one in words_of(text)
    ))  # fmt: skip


@pytest.mark.nightly
@pytest.mark.alone
async def test_95_of_100_searches_over_a_million_rows_take_a_tenth_of_a_second(bot):
    await deliver(bot, push(bot, "A"))
    await grow(bot)
    async with bot.store.transaction() as tx:
        await tx.run(sa.text("ANALYZE"))
        counted = [
            (await tx.run(sa.select(sa.func.count()).select_from(table))).scalar()
            for table in (records["pull_request"], branch_commit, ci_signature, test, title, word)
        ]
    assert sum(counted) > 1_000_000
    took = {}
    for text in SEARCHES * EACH:
        began = time.perf_counter()
        status, _ = await bot.get(f"/api/search?q={quote(text)}")
        took.setdefault(text, []).append(time.perf_counter() - began)
        assert status == 200
    best = {text: min(times) for text, times in took.items()}  # other programs run meanwhile
    slowest = sorted(best.items(), key=lambda one: -one[1])[:8]
    told = ", ".join(f"{text!r} {seconds * 1000:.0f} ms" for text, seconds in slowest)
    p95 = statistics.quantiles(best.values(), n=20)[-1]
    told = f"{sum(counted):,} rows: p95 {p95 * 1000:.0f} ms; the slowest: {told}"
    structlog.get_logger().info("searched", told=told)
    assert p95 <= MOST, told
