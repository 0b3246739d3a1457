"""A pull request to look at."""

import pytest

from tests.harness import UPSTREAM


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, title="Make it faster", author="octocat")
    await bot.settle()
    return made
