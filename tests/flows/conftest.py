"""Stories of pull requests end with a comparison: page, comment, check runs and JSON say the same."""

from __future__ import annotations

import pytest

from tests import agreement

STORIES = frozenset(
    {
        "test_any_order", "test_comment", "test_commands", "test_confirm", "test_ended_at_github", "test_gate",
        "test_labels", "test_many_heads", "test_marks", "test_raised", "test_rerun_buttons", "test_results",
        "test_run_again", "test_story", "test_timeouts",
    }
)  # fmt: skip


@pytest.fixture
async def bot(bot, request):
    """The bot; at the end of a story what it says is compared, unless the test has failed already."""
    yield bot
    if request.module.__name__.rpartition(".")[2] in STORIES:
        await agreement.check(bot)
