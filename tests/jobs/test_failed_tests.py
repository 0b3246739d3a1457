"""Tests that failed, in the cells of their jobs: two failures of one new test are a breakage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from tests.evidence.tests.reported import case, ran, xml
from tests.harness import UPSTREAM
from tests.jobs.test_hud import API, HUD
from tests.pages.page_checks import page_text
from tests.serving import SQLITE

JOB = "linux / test (default, linux.large)"
HORIZON = 180


@pytest.fixture
def settings(settings):
    """The settings of a bot that collects reports of tests."""
    return replace(settings, of_features={CollectSettings: CollectSettings(ci_logs="off")})


async def a_push(bot, github, *failing):
    """A push, and a job whose report has these tests fail and one pass."""
    bot.clock.advance(60)
    sha = await github.push(UPSTREAM, message="Change")
    cases = [case("test_ok"), *(case(name, "failed") for name in failing)]
    outcome = "failure" if failing else "success"
    await ran(github, {"a.xml": xml(*cases)}, name=JOB, head_sha=sha, conclusion=outcome)
    await bot.settle(horizon=HORIZON)
    return sha


async def state(bot):
    (column,) = (await bot.get(API))[1]["columns"]
    return column["state"]


@pytest.mark.logic
@pytest.mark.parametrize(
    ("pushes", "expected"),
    [
        ([(), ("test_a", "test_b"), ("test_b",)], "broken"),
        pytest.param([(), ("test_a",), ("test_b",)], "suspect", marks=pytest.mark.nightly),
        ([("test_a",), ("test_a",)], "suspect"),  # nobody knows whether it ever passed
    ],
)
async def test_two_failures_of_one_new_test_are_a_breakage(bot, github, pushes, expected):
    for failing in pushes:
        await a_push(bot, github, *failing)
    assert await state(bot) == expected


@SQLITE
async def test_a_cell_says_how_many_tests_failed(bot, github):
    sha = await a_push(bot, github, "test_a", "test_b")
    body = (await bot.get(API))[1]
    assert [line["cells"]["0"]["tests"] for line in body["lines"] if line["sha"] == sha] == [2]
    page = (await bot.get(HUD))[1]
    assert "failure, 2 failed tests" in page
    key = page.partition('data-key="')[2].partition('"')[0]
    opened = await page_text(bot, f"{HUD}?cell={sha[:12]}.{key}")
    assert "3 tests, 1 passed, 2 failed" in opened
    assert "not measured" not in opened
