"""The feature `culprits`: which upstream commit broke a backend, found by running it."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.errors import GitHubRefused, RetryLater
from bot.core.feature import Feature, Finding, ok, warning
from bot.core.settings import option

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.ops.doctor import Target

FIELDS = frozenset({"workflow", "sha"})
TAG = re.compile(r"[A-Za-z0-9._/-]{1,200}")
NAME = "bisect"
FEATURE = Feature(
    name="culprits",
    tables="bot.oot.culprits.tables",
    tasks={
        "bisect": "bot.oot.culprits.advance:advance_search",
        "bisect_branch": "bot.oot.culprits.scan:check_branch",
        "bisect_found": "bot.oot.culprits.finish:follow_find",
        "bisect_run": "bot.oot.culprits.steps:run_commit",
        "bisect_scan": "bot.oot.culprits.scan:scan",
    },
    background=frozenset({"bisect_scan"}),
    periodic="bot.oot.culprits.feature:periodic",
    before_commit="bot.oot.culprits.scan:before_commit",
    exports="bot.oot.culprits.rows:EXPORTS",
    prune="bot.oot.culprits.rows:delete_old_searches",
    settings="bot.oot.culprits.feature:CulpritsSettings",
    comment_commands="bot.oot.culprits.command:COMMANDS",
    admin_forms={
        "/bisects": "bot.oot.culprits.command:begin_search",
        "/bisects/{id}/cancel": "bot.oot.culprits.command:cancel",
    },
    commands={"bisect": "bot.console.backends:bisect"},
    metrics="bot.oot.culprits.rows:measure_searches",
    conditions="bot.oot.culprits.rows:read_conditions",
    doctor="bot.oot.culprits.feature:check_own_runs",
)


def tag(text: str) -> str:
    """Parse the pattern of a tag that makes upstream's CI run a commit."""
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        made = text.format(workflow="trunk", sha="0" * 40)
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{text[:80]!r} is not a pattern of a tag: {error}") from None
    if not fields <= FIELDS or "sha" not in fields:
        raise ValueError("a pattern of a tag has {sha}, and may have {workflow}: ciflow/{workflow}/{sha}")
    if not TAG.fullmatch(made) or ".." in made or "//" in made or made.strip("/") != made:
        raise ValueError(f"{made[:80]!r} would not be a valid name of a tag")
    return text


@dataclass(frozen=True, kw_only=True)
class CulpritsSettings:
    """How upstream's own CI is run on a commit that it has not run."""

    ci_bisect_tag: str | None = option(
        "Tag that has upstream's own CI run a commit for a search, as in ciflow/{workflow}/{sha}; the App creates it, "
        "which takes the permission `contents: write` there. Unset: only runs that exist are run again.",
        tag,
        default=None,
    )


async def check_own_runs(target: Target) -> list[Finding]:
    """Check whether the tags of CI_BISECT_TAG may be created."""
    pattern = target.settings.of(CulpritsSettings).ci_bisect_tag
    if pattern is None:
        words = "CI_BISECT_TAG is unset: of upstream's own CI, searches only run again what has run"
        return [ok(NAME, words)]
    findings = []
    for repo in target.settings.upstream_repo:
        app = target.app_for(repo)
        try:
            await app.tokens.get(repo, {"contents": "write"})
        except (GitHubRefused, RetryLater) as error:
            todo = "grant the App `contents: write`, or unset CI_BISECT_TAG"
            findings.append(warning(NAME, f"no tag can be created in {repo}: {error}", todo))
        else:
            findings.append(ok(NAME, f"searches may create tags like {pattern} in {repo}"))
    return findings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"bisect_scan": 300.0}
