"""What the loop with backends adds to the program: allowlist, results, reports and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def allowlist_periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind: on GitHub an unchanged file is answered with 304."""
    return {"allowlist": 30.0}


ALLOWLIST = Feature(
    name="allowlist",
    tables="bot.oot.allowlist.versions",
    tasks={"allowlist": "bot.oot.allowlist.versions:refresh_allowlist"},
    periodic="bot.oot.feature:allowlist_periodic",
    watched="bot.oot.allowlist.versions:watch_backends",
    commands={"allowlist": "bot.console.backends:allowlist"},
)


RESULTS = Feature(
    name="results",
    tables="bot.oot.results.tables",
    exports="bot.oot.results.exports:EXPORTS",
    retained="bot.oot.results.jobs:retained",
)


REPORTS = Feature(
    name="reports",
    tables="bot.oot.reports.rows",
    tasks={
        "confirm": "bot.oot.reports.lifecycle:confirm_run",
        "verify_commit": "bot.oot.reports.lifecycle:verify_commit",
    },
    routes="bot.oot.reports.endpoints:setup",
    views="bot.oot.reports.endpoints:VIEWS",
    doctor="bot.oot.reports.oidc:check_issuers",
    commands={"keys": "bot.console.backends:keys", "report": "bot.console.ci:report"},
)


COMMANDS = Feature(
    name="commands",
    tasks={
        "cancel": "bot.oot.commands.backend_runs:cancel_run",
        "command": "bot.oot.commands.comment_commands:carry_out_comment",
        "command_answer": "bot.oot.commands.comment_commands:answer_command",
        "rerun": "bot.oot.commands.backend_runs:handle_button",
        "run_again": "bot.oot.commands.backend_runs:run_again",
    },
)


STATISTICS = Feature(
    name="statistics",
    tables="bot.oot.statistics.tables",
    sums=("bot.oot.statistics.daily_sums:BACKENDS",),
    prune="bot.oot.statistics.countable_jobs:forget_names",
    before_commit="bot.oot.statistics.daily_sums:note_changed",
)


VERDICT = Feature(name="verdict", tables="bot.oot.verdict.comparison")


def dispatch_periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind."""
    return {"sweep": 60.0, "machines": 15.0}


DISPATCH = Feature(
    name="dispatch",
    tables="bot.oot.dispatch.rows",
    tasks={
        "approve": "bot.oot.dispatch.redispatch:approve_labeled",
        "ping": "bot.oot.dispatch.ping:send_ping",
        "dispatch": "bot.oot.dispatch.send_dispatch:send_dispatch",
        "relay": "bot.oot.dispatch.plan_dispatches:plan_dispatches",  # databases hold it by this name
        "machines": "bot.oot.dispatch.machines:release_waiting",
        "select": "bot.oot.dispatch.redispatch:select_again",
        "sweep": "bot.oot.dispatch.sweep:finish_overdue",
    },
    periodic="bot.oot.feature:dispatch_periodic",
    doctor="bot.oot.dispatch.decide:check_selection",
    admin_forms={"/ping": "bot.oot.dispatch.ping:request_by_form"},
    prune="bot.oot.dispatch.sweep:prune_dispatching",
    reconcile="bot.oot.dispatch.reconcile_pulls:reconcile",
)


PUBLISH = Feature(
    name="publish",
    tables="bot.oot.publish.tables",
    tasks={
        "comment": "bot.oot.publish.comment:write_comment",
        "installed": "bot.oot.publish.publish:publish_account",
        "publish": "bot.oot.publish.publish:publish_pull",
        "publish_open": "bot.oot.publish.publish:publish_open_pulls",
    },
    on_start="bot.oot.publish.rows:lose_all_intents",
    reconcile="bot.oot.publish.merge_queue:reconcile_queue_bases",
    prune="bot.oot.publish.merge_queue:prune_groups",
)
