"""Deliveries in an archive: byte by byte as they came, listed, and written once however often they are sent."""

from __future__ import annotations

import hashlib

from tests.harness import UPSTREAM
from tests.sinks.stored import files, lines

DAY = "raw/2026/09/21"  # of the test's clock


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
