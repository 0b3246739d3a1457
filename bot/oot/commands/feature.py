"""The feature `commands`: commands in comments, and the buttons of check runs."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="commands",
    tasks={
        "cancel": "bot.oot.commands.cancel:cancel_run",
        "command": "bot.oot.commands.comment_commands:carry_out_comment",
        "command_answer": "bot.oot.commands.answer_issue:answer_command",
        "rerun": "bot.oot.commands.rerun:handle_button",
        "run_again": "bot.oot.commands.rerun:run_again",
    },
)
