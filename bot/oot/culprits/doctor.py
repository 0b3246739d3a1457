"""Lines of `ootbot doctor` about searches: how upstream's own CI is run on a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import GitHubRefused, RetryLater
from bot.core.finding import Finding, ok, warning
from bot.oot.culprits.settings import CulpritsSettings

if TYPE_CHECKING:
    from bot.ops.doctor.target import Target

NAME = "bisect"


async def check_own_runs(target: Target) -> list[Finding]:
    """Say whether tags may be created where CI_BISECT_TAG names some."""
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
