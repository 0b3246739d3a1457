"""The parser child: what it may import and use, and what becomes of files that abuse it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bot.evidence.collect.parse.contract import Request
from bot.evidence.collect.parser_pool import ParserPool
from bot.features import FEATURES
from tests.workers import eventually

ROOT = Path(__file__).parents[3]
PARSERS = """
import os, sys, time

import msgspec

from bot.evidence.collect.parse import archives, contract


def look(given):
    return {"modules": sorted(sys.modules), "environment": dict(os.environ), "folder": os.getcwd(),
            "nice": os.nice(0), "pid": os.getpid(), "options": given.options}


def size(given):
    given.blob.write_bytes(b"kept: " + given.path.read_bytes())
    print("a parser may print")
    return given.path.stat().st_size


def memory(given):
    return len(bytearray(2 * 1024**3))


def disk(given):
    given.blob.write_bytes(bytes(given.options))


def spin(given):
    while True:
        pass


def wrong(given):
    return 1 / 0


def hostile(given):
    raise contract.Refused("zip ratio 1028:1")


def full(given):
    with open("/dev/full", "wb") as file:
        file.write(b"x")


def deep(given):
    return deep(given)


def wait(given):
    given.blob.write_text(str(os.getpid()))
    time.sleep(600)


def pause(given):
    given.blob.write_text(str(os.getpid()))
    time.sleep(0.3)
"""


@pytest.fixture
def parsers(tmp_path, monkeypatch):
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "some_parsers.py").write_text(PARSERS)
    monkeypatch.syspath_prepend(folder)
    return "some_parsers"


@pytest.fixture
async def pool():
    made = ParserPool(1)
    yield made
    await made.close()


@pytest.fixture
def request_for(tmp_path, parsers):
    def make(name, options=None, most_written=1024 * 1024):
        (tmp_path / "file").write_bytes(b"12345")
        return Request(
            parser=f"{parsers}:{name}",
            path=str(tmp_path / "file"),
            blob=str(tmp_path / "blob"),
            answer=str(tmp_path / "answer"),
            options=options,
            most_written=most_written,
        )

    return make


def answer(tmp_path):
    return msgspec.msgpack.decode((tmp_path / "answer").read_bytes())


async def test_a_child_has_the_core_and_the_parsers_only(nice_parsers, pool, request_for, tmp_path):
    reply = await pool.parse(request_for("look", options={"rules": ["a"]}))
    assert reply.state == "parsed"
    seen = answer(tmp_path)
    ours = {name for name in seen["modules"] if name.partition(".")[0] in {"bot", "handlers"}}
    harness = {"bot", "bot.evidence", "bot.evidence.collect", "bot.evidence.collect.parse"} | {
        f"bot.evidence.collect.parse.{name}" for name in ("child", "contract", "archives")
    }
    assert {name for name in ours if not name.startswith("bot.core")} == harness
    assert not {"aiohttp", "sqlalchemy", "asyncio"} & set(seen["modules"])
    assert set(seen["environment"]) <= {"LC_CTYPE"}  # Python's own
    assert (seen["folder"], seen["nice"]) == ("/", 19)
    assert seen["options"] == {"rules": ["a"]}


async def test_one_child_serves_many_files_and_is_replaced_after_two_hundred(pool, request_for, tmp_path):
    pids = []
    for _ in range(201):
        assert (await pool.parse(request_for("look"))).state == "parsed"
        pids.append(answer(tmp_path)["pid"])
    assert len(set(pids[:200])) == 1
    assert pids[200] != pids[0]


async def test_a_file_and_what_a_parser_writes(pool, request_for, tmp_path):
    assert (await pool.parse(request_for("size"))).state == "parsed"
    assert answer(tmp_path) == 5
    assert (tmp_path / "blob").read_bytes() == b"kept: 12345"


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("memory", "broken", "takes more than 1,024 MiB of memory"),
        ("wrong", "broken", "the parser failed: ZeroDivisionError: division by zero"),
        ("hostile", "refused", "zip ratio 1028:1"),
        ("deep", "broken", "nested too deeply"),
        ("full", "unable", "No space left on device"),
    ],
)
async def test_what_a_file_makes_of_a_parser_costs_that_file_only(
    pool, request_for, tmp_path, name, state, words
):
    reply = await pool.parse(request_for(name))
    assert (reply.state, words in reply.reason) == (state, True), reply
    assert (await pool.parse(request_for("size"))).state == "parsed"


async def test_no_file_over_its_limit_is_written(pool, request_for, tmp_path):
    assert (await pool.parse(request_for("disk", options=1000, most_written=1000))).state == "parsed"
    reply = await pool.parse(request_for("disk", options=1001, most_written=1000))
    assert (reply.state, reply.reason) == ("broken", "what was read of it has over 1,000 bytes")


async def test_an_endless_loop_is_ended(request_for):
    pool = ParserPool(1, wall=5.0, least_cpu=0)  # in which the slowest machine starts a child and parses
    reply = await pool.parse(request_for("spin"))
    assert (reply.state, reply.reason) == ("broken", "reading it took too long: over 5 s")
    assert (await pool.parse(request_for("size"))).state == "parsed"
    await pool.close()


async def test_no_file_is_to_blame_where_the_child_never_gets_the_processor(request_for):
    pool = ParserPool(1, wall=0.5)
    reply = await pool.parse(request_for("wait"))
    assert (reply.state, reply.reason) == ("unable", "the machine is too busy to read it")
    await pool.close()


async def test_a_cancelled_task_takes_its_child_with_it(pool, request_for, tmp_path):
    working = asyncio.create_task(pool.parse(request_for("wait")))
    pid = int(await eventually(lambda: written(tmp_path / "blob"), "the parser to begin"))
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert (await pool.parse(request_for("size"))).state == "parsed"


async def test_a_child_at_work_while_the_pool_closes_ends_with_its_file(pool, request_for, tmp_path):
    working = asyncio.create_task(pool.parse(request_for("pause")))
    pid = int(await eventually(lambda: written(tmp_path / "blob"), "the parser to begin"))
    await pool.close()
    assert (await working).state == "parsed"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_task_cancelled_while_its_child_starts_leaves_none(pool, request_for, turns):
    before = children()
    working = asyncio.create_task(pool.parse(request_for("size")))
    for _ in range(turns):
        await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert children() == before


def children():
    """The processes that this thread's process has started and that are not gone."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def written(path):
    return path.read_text() if path.exists() else ""


def test_the_parent_never_imports_a_parser():
    assert "some_parsers" not in sys.modules


PARSERS_OF_FEATURES = sorted({name for feature in FEATURES for name in feature.parsers.values()})


@pytest.mark.parametrize("parser", PARSERS_OF_FEATURES)
def test_a_features_parser_brings_nothing_of_the_parent_along(parser):
    """What it imports is all that the child has besides the core."""
    module = parser.partition(":")[0]
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seen = set(done.stdout.split())
    assert not {"aiohttp", "sqlalchemy", "asyncio", "gidgethub", "jinja2"} & seen
    parts = ("bot.db", "bot.web", "bot.github", "bot.queue", "bot.ingest", "bot.oot", "bot.worker", "bot.app")
    assert [name for name in sorted(seen) if name.startswith(parts)] == []
