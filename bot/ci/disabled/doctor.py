"""The line of `ootbot doctor` about answers on issues that disable tests: where the App may write some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.disabled import answer_rows, rows
from bot.core import text
from bot.core.errors import StoreUnavailable
from bot.core.finding import Finding, ok

if TYPE_CHECKING:
    from bot.ops.doctor.target import Target

NAME = "disabled tests"
PERMISSION = "issues: write"


async def check_answers(target: Target) -> list[Finding]:
    """Say where issues get an answer; where they do not, the page of the list says the same."""
    if not await target.has_database():
        return []  # another check says so
    apps = {app.role: app.github.app_id for app in target.apps}
    upstream_app = apps.get("one") or apps.get("upstream", 0)
    try:
        async with target.store.read() as tx:
            repos = sorted((await rows.repositories(tx, target.settings)).values())
            silent = [
                repo
                for repo in repos
                if not await answer_rows.may_write(
                    tx,
                    repo,
                    upstream_app if target.settings.is_upstream(repo) else apps.get("relay", upstream_app),
                )
            ]
    except StoreUnavailable:
        return []  # another check says so
    if not repos:
        return [ok(NAME, "no repository is known yet whose issues could disable any")]
    if not silent:
        return [ok(NAME, "issues that disable tests and jobs are answered")]
    where = text.listing(silent)
    return [
        ok(
            NAME,
            f"issues get no answer in {where}: {PERMISSION} is not granted; /owner/repo/disabled says the same",
        )
    ]
