"""A backend that blocks only since lately: what it reported before counts as far as it was proven."""

from __future__ import annotations

import pytest

from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE


@pytest.fixture
async def pull(bot, github):
    await bot.list_backends(f"L2: [{L4}]")
    made = await github.open_pull(UPSTREAM)
    await bot.settle()
    return made


def gate(bot, pull):
    return bot.checks(UPSTREAM, pull.head_sha)["oot / gate"]


async def green(bot, github, dispatch, **options):
    """A run that succeeds and says so."""
    run = await github.start_run(L4)
    assert (await bot.report(dispatch, run_id=str(run.id), **options))[0] == 200
    await github.finish_run(run, "success")
    await bot.settle(horizon=30)


def without_token(dispatch):
    """The dispatch as a backend sees it that hands no token back."""
    del dispatch.client_payload["callback_token"]
    dispatch.client_payload["callback_token"] = None
    return dispatch


async def test_a_report_with_the_dispatchs_token_counts_once_the_backend_blocks(bot, github, pull):
    await green(bot, github, bot.dispatch(L4))
    await bot.list_backends(f"L4: {{tpu: {L4}}}")
    await bot.wait(60)
    assert gate(bot, pull)[:2] == ("completed", "success")


async def test_a_report_without_it_does_not_count_until_it_is_run_again(bot, github, pull):
    await green(bot, github, without_token(bot.dispatch(L4)))
    (row,) = await bot.rows("oot_workflow_job")
    assert row["flags"]["no_callback_token"] is True
    await bot.list_backends(f"L4: {{tpu: {L4}}}")
    await bot.wait(60)
    assert gate(bot, pull)[:2] == ("in_progress", None)
    assert "too little proof" in bot.checks(UPSTREAM, pull.head_sha)[f"oot / {L4}"][2]
    await github.comment(pull, "/oot rerun tpu", "alice")
    await bot.settle(horizon=30)
    await green(bot, github, bot.dispatch(L4))
    assert gate(bot, pull)[:2] == ("completed", "success")


async def test_it_counts_where_the_entry_does_not_ask_for_it(bot, github, pull):
    await green(bot, github, without_token(bot.dispatch(L4)))
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, callback_token: optional}}}}")
    await bot.wait(60)
    assert gate(bot, pull)[:2] == ("completed", "success")
