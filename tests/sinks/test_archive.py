"""Deliveries in an archive: byte by byte, written once, and an empty database filled from it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import sqlite3
import subprocess
from pathlib import Path

import pytest

from bot.console.export import _until_nobody_reads as until_nobody_reads
from bot.db.exports import Export, StoredObject
from bot.ingest.tables import TYPES, records
from bot.sinks.driver import Batch, Outgoing, SinkAway
from bot.sinks.objects import ObjectDriver, ObjectStorage
from tests.command import ootbot
from tests.harness import L4, UPSTREAM, replace
from tests.serving import SQLITE
from tests.sinks.stored import files, lines

DAY = "raw/2026/09/21"  # of the test's clock
PLACE = "--from-objects"
DOCUMENT = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text()
OF_GRID = {"branch_commit", "ci_cell", "ci_column", "trunk_branch"}  # rebuilt with the records
# by the tasks that replaying leaves, once a server runs on the database
MADE_LATER = {
    "ci_broken",
    "ci_commit",
    "ci_day",
    "ci_line",
    "ci_runner_day",
    "contribution_pull",
    "trunk_event",
}
# what backends reported and what was dispatched to them, the allowlist, what only GitHub could be asked for
IN_NO_DELIVERY = {
    "allowlist_version", "oot_compared", "oot_day", "oot_dispatch", "oot_level", "oot_mention", "oot_merge_base",
    "oot_rate", "oot_workflow_job", "pinned_repository", "repository",
}  # fmt: skip
OWN_WORK = {  # of the bot that is gone
    "ci_budget", "ci_fetch", "ci_listing", "delivery", "oot_budget", "oot_check", "oot_comment", "secret", "sink_mark",
    "sink_repository", "sink_state", "sweep", "task",
}  # fmt: skip
KIB = 1024
LARGEST = 16 * KIB  # bytes of a file
SMALL, LARGE = os.urandom(KIB), os.urandom(64 * KIB)  # as large compressed


async def delivered(bot, github):
    """Have a pull request opened and a job run; returns the bodies that were sent, by GUID."""
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(UPSTREAM, event="pull_request", head_sha=pull.head_sha)
    await github.finish_job(await github.start_job(run, "build"), "success")
    await bot.settle(horizon=15)
    return {row["guid"]: await bot.body(row["guid"]) for row in await bot.rows("delivery")}


async def test_every_delivery_is_archived_as_it_came(bot, github, folder):
    bodies = await delivered(bot, github)
    stored = files(folder / "archive")
    archived = {key.rpartition("/")[2].removesuffix(".json.gz"): content
                for key, content in stored.items() if not key.startswith("raw/manifest/")}  # fmt: skip
    assert archived == bodies
    listed = [
        line for key, content in stored.items() if key.startswith("raw/manifest/") for line in lines(content)
    ]
    assert {line["guid"]: line["sha256"] for line in listed} == {
        guid: hashlib.sha256(body).hexdigest() for guid, body in bodies.items()
    }
    rows = {row["guid"]: row for row in await bot.rows("delivery")}
    assert {(line["guid"], line["event"], line["repo"], line["received_at"]) for line in listed} == {
        (guid, row["event"], row["repo"], row["received_at"]) for guid, row in rows.items()
    }
    assert await bot.rows("sink_mark") == []


async def test_copies_have_upstreams_keys_and_githubs_whole_objects(bot, github, folder):
    bodies = await delivered(bot, github)
    stored = files(folder / "copies")
    (job,) = await bot.rows("workflow_job")
    (copy,) = lines(stored[f"workflow_job/{UPSTREAM}/{job['id']}"])
    assert copy["id"] == job["id"]
    assert "run_url" in copy, "a record does not have it: it is GitHub's own object"
    events = {row["guid"]: row["event"] for row in await bot.rows("delivery")}
    for guid, body in bodies.items():
        prefix = "full_" if events[guid] in {"workflow_job", "workflow_run"} else ""
        assert stored[f"{prefix}{events[guid]}/{guid}"] == body


class Elsewhere:
    """A bot's settings with another data folder, for commands."""

    def __init__(self, bot, folder):
        self.context = bot.context
        folder.mkdir()
        self.context = replace(bot.context, settings=replace(bot.context.settings, data_dir=folder))


def records_in(folder):
    connection = sqlite3.connect(folder / "ootbot.db")
    connection.row_factory = sqlite3.Row
    names = [*TYPES, "repository_name", "ci_cell"]
    found = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in names}
    # GitHub was also asked for repositories: what it answered is no delivery, and may be newer in a detail
    named = ("repository_id", "repo", "private", "received_at")
    found["repository"] = [{name: row[name] for name in named} for row in found["repository"]]
    return {name: sorted(map(str, rows)) for name, rows in found.items()}


@SQLITE
async def test_an_empty_database_is_filled_from_the_archive(bot, github, folder, tmp_path):
    pull = await github.open_pull(UPSTREAM)
    await github.label(pull, "ciflow/oot/npu")
    await delivered(bot, github)
    await github.close(pull)
    await bot.settle(horizon=15)
    there = Elsewhere(bot, tmp_path / "empty")
    code, out, err = await ootbot(there, "replay", PLACE, f"file://{folder}/archive")
    assert (code, out) == (
        0,
        f"replayed {len(await bot.rows('delivery'))} deliveries of file://{folder}/archive\n",
    ), err
    assert records_in(tmp_path / "empty") == records_in(bot.context.settings.data_dir)


@SQLITE
async def test_what_is_damaged_is_named_and_the_rest_is_replayed(bot, github, folder, tmp_path):
    await delivered(bot, github)
    first, second, third, *_ = sorted((folder / "archive").rglob("*.json.gz"))
    first.unlink()
    second.write_bytes(third.read_bytes())
    third.write_bytes(b"nothing")
    there = Elsewhere(bot, tmp_path / "empty")
    code, out, err = await ootbot(there, "replay", PLACE, f"file://{folder}/archive")
    assert code == 1
    for path, words in ((first, "is missing"), (second, "differs from what was archived"),
                        (third, "is not a gzip file")):  # fmt: skip
        assert f"{path.relative_to(folder / 'archive')} {words}" in err
    assert f"replayed {len(await bot.rows('delivery')) - 3} " in out


@SQLITE
async def test_where_no_archive_is_nothing_is_replayed(bot, tmp_path):
    code, _, err = await ootbot(bot, "replay", PLACE, f"file://{tmp_path}/nothing")
    assert (code, "holds no archive" in err) == (1, True)
    code, _, err = await ootbot(bot, "replay", PLACE, "https://example.com/x")
    assert (code, "url is none of s3://" in err) == (2, True)
    code, _, err = await ootbot(bot, "replay", PLACE, "s3://bucket/x", "--all")
    assert (code, "stands alone" in err) == (2, True)


def everything_in(folder):
    """The rows of all tables, as texts."""
    connection = sqlite3.connect(folder / "ootbot.db")
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
        for name in names
        if not name.startswith(("sqlite_", "alembic"))
    }


@SQLITE
@pytest.mark.nightly
async def test_what_else_is_rebuilt_and_what_is_not_is_documented(bot, github, folder, tmp_path):
    pull = await github.open_pull(UPSTREAM)
    await github.push(UPSTREAM, "main")
    await delivered(bot, github)
    await bot.settle()
    await bot.report(bot.dispatch(L4), status="in_progress")
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await github.comment(pull, "Thanks", by="alice")
    run = await github.start_run(UPSTREAM, event="push")
    await github.finish_job(await github.start_job(run, "build"), "failure", log="##[error]broken\n")
    await github.finish_run(run, "failure")
    await bot.settle(horizon=100)
    there = Elsewhere(bot, tmp_path / "empty")
    code, _, err = await ootbot(there, "replay", PLACE, f"file://{folder}/archive")
    assert code == 0, err
    first, again = everything_in(bot.context.settings.data_dir), everything_in(tmp_path / "empty")
    differ = {name for name in first if first[name] != again[name]}
    assert differ <= MADE_LATER | IN_NO_DELIVERY | OWN_WORK
    same = {name for name in first if first[name] and name not in differ}
    assert same >= {
        "check_run",
        "pull_request",
        "workflow_run",
        "workflow_job",
        *OF_GRID,
        "word",
        "word_title",
    }
    assert "in no delivery" in DOCUMENT


def test_what_reads_the_output_may_stop():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as file, until_nobody_reads(file):
        file.write("a line\n" * 100_000)


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
