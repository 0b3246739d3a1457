"""The publish feature: check runs, gates and comments on pull requests."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="publish",
    tables="bot.oot.publish.tables",
    tasks={
        "comment": "bot.oot.publish.comment:run",
        "installed": "bot.oot.publish.publish:run_installed",
        "publish": "bot.oot.publish.publish:run",
        "publish_open": "bot.oot.publish.publish:run_publish_open",
    },
    on_start="bot.oot.publish.create_once:lose_all",
    reconcile="bot.oot.publish.queue_bases:reconcile",
    prune="bot.oot.publish.merge_queue:prune",
)
