"""What do the tests of the doors share? An open pull request, relayed to every backend."""

import pytest

from tests.harness import UPSTREAM


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    return made
