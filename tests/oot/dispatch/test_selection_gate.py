"""A gate never turns green because nothing ran, unless the entry says so in words."""

import pytest

from tests.flows.scenarios import dispatched_to, states
from tests.harness import L4, UPSTREAM
from tests.oot.dispatch.selected import SOURCES, asked_for_files, blocking, open_pull, push_files

pytestmark = pytest.mark.logic
PASSES = blocking(f"paths: {SOURCES}, paths_pass: true, confirm: false")


def gate(bot, sha):
    return bot.checks(UPSTREAM, sha)["oot / gate"]


async def test_the_paths_of_a_blocking_backend_are_ignored(bot, github):
    await bot.list_backends(blocking(f"paths: {SOURCES}"))
    pull = await open_pull(bot, github, "docs/a.md")
    assert dispatched_to(github) == [L4]
    assert asked_for_files(github) == []
    assert gate(bot, pull.head_sha)[:2] == ("in_progress", None)


async def test_the_gate_passes_without_a_backend_whose_entry_says_so(bot, github):
    await bot.list_backends(PASSES)
    pull = await open_pull(bot, github, "docs/a.md")
    await bot.settle(horizon=30)
    assert dispatched_to(github) == []
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / gate"] == ("completed", "success", "1 blocking backend not needed")
    assert checks["oot / tpu"] == ("completed", "skipped", "not needed: no file of interest changed")
    sha = await push_files(bot, github, pull, "docs/a.md", "torch/csrc/a.cpp")
    assert dispatched_to(github) == [L4]
    assert gate(bot, sha)[:2] == ("in_progress", None)
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=30)
    assert gate(bot, sha) == ("completed", "failure", "tpu failed")


async def test_once_the_entry_no_longer_says_so_the_gate_waits(bot, github):
    await bot.list_backends(PASSES)
    pull = await open_pull(bot, github, "docs/a.md")
    await bot.list_backends(blocking(f"paths: {SOURCES}"))
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[:2] == ("in_progress", None)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "not sent yet" in page
    await github.close(pull)
    bot.clock.advance(5)
    await github.reopen(pull)
    await bot.settle(horizon=30)
    assert dispatched_to(github) == [L4], "the next event is dispatched to it"


async def test_a_backend_that_came_to_block_after_it_was_skipped_keeps_the_gate_waiting(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L4}, labels: [gpu]}}]")
    pull = await open_pull(bot, github)
    assert await states(bot, L4) == ["skipped_labels"]
    await bot.list_backends(PASSES)
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha) == ("in_progress", None, f"waiting for {L4}")


async def test_the_gate_waits_for_a_backend_that_runs_no_drafts(bot, github):
    await bot.list_backends(blocking("draft: false, confirm: false"))
    pull = await open_pull(bot, github, draft=True)
    assert gate(bot, pull.head_sha) == ("in_progress", None, "waiting for tpu")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"] == ("queued", None, "not sent yet: it is a draft")
    bot.clock.advance(5)
    await github.ready_for_review(pull)
    await bot.settle()
    assert dispatched_to(github) == [L4]


async def test_two_backends_one_of_which_was_not_needed(bot, github):
    await bot.list_backends(f"""
    L4:
      tpu: {{repo: {L4}, paths: ["src/**"], paths_pass: true, confirm: false}}
      npu: {{repo: org/npu-backend, confirm: false}}
    """)
    pull = await open_pull(bot, github, "docs/a.md")
    assert gate(bot, pull.head_sha) == ("in_progress", None, "waiting for npu")
    await bot.report(bot.dispatch("org/npu-backend"))
    await bot.settle(horizon=120)
    assert gate(bot, pull.head_sha) == ("completed", "success", "1 blocking backend passed, 1 not needed")
