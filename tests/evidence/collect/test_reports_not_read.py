"""Artifacts of which no report can be read: their state says so, by the artifact's name, and the tests are incomplete."""

from __future__ import annotations

import pytest

from bot.features import FEATURES
from tests.evidence.collect import hostile_zip
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
GOOD = b'<testsuite name="s"><testcase name="test_a" classname="m.C" file="a.py" time="0.1"/></testsuite>'


@pytest.fixture
def features():
    """All that the program has: the parsers of test reports are the real ones."""
    return FEATURES


def encrypted(archive):
    """Return an archive that says of every member that it is encrypted."""
    content = bytearray(archive)
    for signature, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = content.find(signature)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(signature, at + 4)
    return bytes(content)


UNREAD = {
    "no archive": (b"PK\x03\x04 and then nothing", "broken", "this is no ZIP archive, or its end is missing"),
    "two meanings": (
        hostile_zip.two_ends(hostile_zip.zipped({"a.xml": GOOD})),
        "refused",
        "the ZIP archive contradicts itself: it has several end records",
    ),
    "encrypted": (
        encrypted(hostile_zip.zipped({"a.xml": GOOD})),
        "broken",
        "no report in it can be read; a.xml: encrypted",
    ),
    "no XML": (
        hostile_zip.zipped({"a.xml": b"<testsuite"}),
        "broken",
        "no report in it can be read; a.xml: ",
    ),
}


@pytest.mark.parametrize("how", UNREAD)
async def test_the_state_says_that_nothing_was_read(bot, github, how):
    content, state, reason = UNREAD[how]
    run = await github.start_run(UPSTREAM, event="pull_request")
    job = await github.start_job(run, "linux / test (default, 1, 1)")
    github.add_artifact(run, f"test-reports-a_{job.id}", content)
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=120)
    (shown,) = (await bot.get(f"/api/ci/jobs/{UPSTREAM}/{job.id}"))[1]["artifacts"]
    assert (shown["state"], shown["reason"].startswith(reason)) == (state, True), shown
    (part,) = await bot.rows("test_part")
    names = [one["member"] for one in part["unreadable"]]
    assert names == ["a.xml" if reason.startswith("no report") else shown["name"]]
    page = (await bot.get(f"/{UPSTREAM}/run/{run.id}"))[1]
    assert reason.split(";")[0] in page


async def test_one_report_that_can_be_read_is_enough(bot, github):
    run = await github.start_run(UPSTREAM, event="pull_request")
    content = hostile_zip.zipped({"a.xml": GOOD, "b.xml": b"<testsuite"})
    made = github.add_artifact(run, "test-reports-a", content)
    await github.finish_run(run, "success")
    await bot.settle(horizon=120)
    listed = (await bot.get(f"/api/ci/artifacts/{UPSTREAM}?run_id={run.id}"))[1]["artifacts"]
    assert [(one["id"], one["state"]) for one in listed] == [(made.id, "parsed")]
    (part,) = await bot.rows("test_part")
    assert [one["member"] for one in part["unreadable"]] == ["b.xml"]
