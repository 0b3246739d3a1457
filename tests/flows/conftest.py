"""Stories of pull requests end with a comparison: page, comment, check runs and JSON say the same."""

from __future__ import annotations

import pytest

from tests import agreement
from tests.flows.scenarios import NOWHERE
from tests.harness import UPSTREAM

STORIES = frozenset(
    {
        "test_commands", "test_comment", "test_confirm", "test_gate", "test_gate_of_merge_queues", "test_labels",
        "test_raised", "test_rerun_buttons", "test_results", "test_run_again", "test_story", "test_timeouts",
    }
)  # fmt: skip


@pytest.fixture
async def bot(bot, request):
    """The bot; at the end of a story what it says is compared, unless the test has failed already."""
    yield bot
    if request.module.__name__.rpartition(".")[2] in STORIES:
        await agreement.check(bot)


@pytest.fixture
async def pull(bot, github):
    """A pull request that every listed backend was told of."""
    made = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    return made


@pytest.fixture
def outage(bot):
    """Nothing reaches the bot until the function this returns is called."""
    address, bot.app.webhook_url = bot.app.webhook_url, NOWHERE

    def ends():
        bot.app.webhook_url = address

    return ends
