"""The publish feature: check runs, gates and comments on pull requests."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="publish",
    tables="bot.oot.publish.tables",
    tasks={
        "comment": "bot.oot.publish.comment:write_comment",
        "installed": "bot.oot.publish.publish:publish_account",
        "publish": "bot.oot.publish.publish:publish_pull",
        "publish_open": "bot.oot.publish.publish:publish_open_pulls",
    },
    on_start="bot.oot.publish.intent_rows:lose_all_intents",
    sections={"backend": "bot.oot.publish.demotion:show_demotion"},
    reconcile="bot.oot.publish.queue_bases:reconcile_queue_bases",
    prune="bot.oot.publish.merge_queue_rows:prune_groups",
)
