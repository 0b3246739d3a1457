"""The disk of a directory is full: what was changed waits, endpoints answer, and all is sent once there is room."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess

import pytest

from bot.db.exports import Export, StoredObject
from bot.ingest.tables import records
from bot.sinks.driver import Batch, Outgoing, SinkAway
from bot.sinks.objects import ObjectDriver, ObjectStorage
from tests.harness import UPSTREAM
from tests.serving import SQLITE
from tests.sinks.stored import files
from tests.sinks.test_archive import delivered

KIB = 1024
LARGEST = 16 * KIB  # bytes of a file
SMALL, LARGE = os.urandom(KIB), os.urandom(64 * KIB)  # as large compressed


async def test_what_was_written_in_part_is_written_again_as_a_whole(tmp_path):
    driver = ObjectDriver(ObjectStorage(f"file://{tmp_path}/copies"))
    export = Export(name="x", table=records["workflow_job"], day="received_at")

    def make(_export, row):
        return [StoredObject(key=row["key"], content=lambda: (row["content"],))]

    rows = [{"key": "a/small", "content": SMALL}, {"key": "a/large", "content": LARGE}]
    batch = Batch(export=export, make=make, items=[Outgoing((row["key"],), row) for row in rows])
    with limited(), pytest.raises(SinkAway, match="File too large"):
        await driver.send(batch)
    assert set(files(tmp_path / "copies")) <= {"a/small"}, "nothing that is not whole"
    assert await driver.send(batch) == []
    assert files(tmp_path / "copies") == {"a/small": SMALL, "a/large": LARGE}


@contextlib.contextmanager
def limited():
    """Let no file of this process grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def disk(folder):
    """A disk of 64 KiB, where this machine lets us make one."""
    place = folder / "archive"
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a disk of its own takes the right to mount one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@SQLITE
async def test_a_full_disk_is_waited_for(disk, bot, github, folder):
    ballast = disk / "ballast"
    with contextlib.suppress(OSError):
        ballast.write_bytes(bytes(128 * KIB))
    bodies = await delivered(bot, github)
    (state,) = [row for row in await bot.rows("sink_state") if row["sink"] == "archive"]
    waiting = [row for row in await bot.rows("sink_mark") if row["sink"] == "archive"]
    assert "No space left on device" in state["error"]
    assert (len(waiting), state["stopped"], await bot.rows("sink_refused")) == (len(bodies), None, [])
    assert any(UPSTREAM in key for key in files(folder / "copies")), "the other sink never waited"
    status, _ = await bot.send("ping", {"zen": "Keep it."})
    assert status == 202
    ballast.unlink()
    await bot.settle(horizon=700)
    assert await bot.rows("sink_mark") == []
    assert len([key for key in files(disk) if key.endswith(".json.gz")]) == len(await bot.rows("delivery"))
