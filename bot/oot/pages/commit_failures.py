"""The failures on a commit, read for the pages of pull requests and commits: one list of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.links import web_url
from bot.oot.pages.failed_jobs import keys_by_id, list_own
from bot.oot.pages.failure_list import list_failures
from bot.web.failures import FailuresSubject, read_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.pages.failed_jobs import FailedJob
    from bot.oot.pages.failure import FailureList
    from bot.oot.pages.upstream_ci import UpstreamCi
    from bot.web.asked import Asked


async def read_failure_list(
    asked: Asked,
    repo: str,
    sha: str,
    *,
    reported: Sequence[FailedJob],
    own: UpstreamCi,
    of_pull: bool,
    base_ref: str | None = None,
) -> FailureList:
    """Return the failures on a commit of a repository: `reported` by backends, its `own`, and what features know."""
    subject = FailuresSubject(
        repo=repo,
        sha=sha,
        base_ref=base_ref,
        of_pull=of_pull,
        upstream_jobs=keys_by_id(repo, own.jobs),
        github=web_url(asked.settings.github_api_url),
        settings=asked.settings,
    )
    found = await read_failures(asked.context.features, asked.tx, subject)
    return list_failures([*reported, *list_own(repo, own.checks)], found)
