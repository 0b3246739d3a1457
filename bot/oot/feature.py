"""What the loop with backends adds to the program, from the allowlist to the verdict on a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings

FEATURE = Feature(
    name="oot",
    tables=(
        "bot.oot.allowlist.versions",
        "bot.oot.results.tables",
        "bot.oot.statistics.tables",
        "bot.oot.verdict.comparison",
        "bot.oot.reports.rows",
        "bot.oot.dispatch.rows",
        "bot.oot.publish.tables",
    ),
    tasks={
        "allowlist": "bot.oot.allowlist.versions:refresh_allowlist",
        "confirm": "bot.oot.reports.lifecycle:confirm_run",
        "verify_commit": "bot.oot.reports.lifecycle:verify_commit",
        "approve": "bot.oot.dispatch.redispatch:approve_labeled",
        "ping": "bot.oot.dispatch.ping:send_ping",
        "dispatch": "bot.oot.dispatch.send_dispatch:send_dispatch",
        "relay": "bot.oot.dispatch.plan_dispatches:plan_dispatches",  # databases hold it by this name
        "machines": "bot.oot.dispatch.machines:release_waiting",
        "select": "bot.oot.dispatch.redispatch:select_again",
        "sweep": "bot.oot.dispatch.sweep:finish_overdue",
        "comment": "bot.oot.publish.comment:write_comment",
        "installed": "bot.oot.publish.publish:publish_account",
        "publish": "bot.oot.publish.publish:publish_pull",
        "publish_open": "bot.oot.publish.publish:publish_open_pulls",
        "cancel": "bot.oot.commands.backend_runs:cancel_run",
        "command": "bot.oot.commands.comment_commands:carry_out_comment",
        "command_answer": "bot.oot.commands.comment_commands:answer_command",
        "rerun": "bot.oot.commands.backend_runs:handle_button",
        "run_again": "bot.oot.commands.backend_runs:run_again",
    },
    periodic="bot.oot.feature:periodic",
    sums=("bot.oot.statistics.daily_sums:BACKENDS",),
    before_commit="bot.oot.statistics.daily_sums:note_changed",
    on_start="bot.oot.publish.rows:lose_all_intents",
    repositories="bot.oot.allowlist.versions:watch_backends",
    retained="bot.oot.results.jobs:retained",
    exports="bot.oot.results.exports:EXPORTS",
    routes="bot.oot.reports.endpoints:setup",
    views="bot.oot.reports.endpoints:VIEWS",
    admin_forms={"/ping": "bot.oot.dispatch.ping:request_by_form"},
    doctor={
        "reports": "bot.oot.reports.oidc:check_issuers",
        "dispatch": "bot.oot.dispatch.decide:check_selection",
    },
    prune=(
        "bot.oot.statistics.countable_jobs:forget_names",
        "bot.oot.dispatch.sweep:prune_dispatching",
        "bot.oot.publish.merge_queue:prune_groups",
    ),
    reconcile=(
        "bot.oot.dispatch.reconcile_pulls:reconcile",
        "bot.oot.publish.merge_queue:reconcile_queue_bases",
    ),
    commands={
        "allowlist": "bot.console.backends:allowlist",
        "keys": "bot.console.backends:keys",
        "report": "bot.console.ci:report",
    },
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind: on GitHub an unchanged allowlist is answered with 304."""
    return {"allowlist": 30.0, "sweep": 60.0, "machines": 15.0}
