"""Archives of strangers, through GitHub's API: each ends in a state with a reason, and none is opened by the worker."""

from __future__ import annotations

import resource

import pytest

from tests.evidence.collect import hostile_zip
from tests.evidence.collect.test_collecting import fetches
from tests.harness import UPSTREAM
from tests.serving import SQLITE

REPORT = "a_usage_log.txt"
CONTRADICTS = "the ZIP archive contradicts itself"
OFFSET = 2**63 + 5
HOSTILE = {
    "one entry by the end record, millions by ZIP64": (
        hostile_zip.many_behind_one,
        f"{CONTRADICTS}: its two end records differ",
    ),
    "two end records": (hostile_zip.two_ends, f"{CONTRADICTS}: it has several end records"),
    "an offset beyond 2^63": (
        lambda made: hostile_zip.with_zip64(made, start=OFFSET),
        f"{CONTRADICTS}: its two end records differ",
    ),
    "a ZIP64 record somewhere else": (
        lambda made: hostile_zip.with_zip64(made, at=OFFSET),
        f"{CONTRADICTS}: its ZIP64 record is not where it should be",
    ),
    "fewer entries counted than there are": (
        hostile_zip.one_entry_less,
        f"{CONTRADICTS}: its directory has not the",
    ),
    "two entries of one member": (hostile_zip.overlapping, f"{CONTRADICTS}: its members overlap"),
    "another name in the directory": (
        lambda made: hostile_zip.renamed(made, b"a_usage", b"b_usage", directory_only=True),
        f"{CONTRADICTS}: two headers of",
    ),
    "a directory that begins before the file": (
        lambda made: hostile_zip.ended(*hostile_zip.split(made), start=2**32 - 2),
        f"{CONTRADICTS}: its directory does not end where its end record begins",
    ),
}  # fmt: skip


@SQLITE
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("how", HOSTILE)
async def test_an_archive_that_means_two_things_is_refused(bot, github, received, how, large):
    make, reason = HOSTILE[how]
    run = await github.start_run(UPSTREAM, event="pull_request")
    content = make(hostile_zip.zipped({"first.txt": b"1", REPORT: b"line\n" * 100}, large=large))
    made = github.add_artifact(run, "usage-log-a", content)
    await github.finish_run(run, "failure")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await bot.settle(horizon=15)
    state, why = (await fetches(bot))["artifact", made.id]
    assert (state, received) == ("refused", [])
    assert why.startswith(reason)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB


@SQLITE
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
async def test_a_name_that_is_no_text_is_shown_with_replacements(bot, github, received, large):
    run = await github.start_run(UPSTREAM, event="pull_request")
    archive = hostile_zip.zipped(
        {"\N{LATIN SMALL LETTER E WITH ACUTE}_usage_log.txt": b"line\n"}, large=large
    )
    content = hostile_zip.renamed(archive, b"\xc3\xa9_usage", b"\xff\xfe_usage")
    made = github.add_artifact(run, "usage-log-a", content)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=15)
    assert (await fetches(bot))["artifact", made.id] == ("parsed", None)
    ((_, answer, _),) = received
    assert answer == {"\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}_usage_log.txt": 5}
