"""The failures on a commit, read for the pages of pull requests and commits: one list of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.links import web_url
from bot.oot.verdict.failed_jobs import key_of, keys_by_id, list_own
from bot.oot.verdict.failure_list import list_failures
from bot.web.failures import FailuresSubject, read_failures

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from bot.oot.pages.upstream_ci import UpstreamCi
    from bot.oot.verdict.failed_jobs import FailedJob
    from bot.oot.verdict.failure import FailureList
    from bot.web.asked import Asked
    from bot.web.failures import JobKey


async def read_failure_list(
    asked: Asked,
    repo: str,
    sha: str,
    *,
    reported: Sequence[FailedJob],
    passed: AbstractSet[JobKey],
    own: UpstreamCi,
    of_pull: bool,
    judged: AbstractSet[str] = frozenset(),
    base_ref: str | None = None,
) -> FailureList:
    """Return the failures on a commit of a repository: `reported` by backends, its `own`, and what features know.

    `passed` and `judged`: see `list_failures`.
    """
    keys = {
        **keys_by_id(repo, own.jobs),
        **{number: key_of(repo, one) for number, one in own.elsewhere.items()},
    }
    failed = list_own(repo, own.checks)
    subject = FailuresSubject(
        repo=repo,
        sha=sha,
        base_ref=base_ref,
        of_pull=of_pull,
        upstream_jobs=keys,
        github=web_url(asked.settings.github_api_url),
        settings=asked.settings,
    )
    found = await read_failures(asked.context.features, asked.tx, subject)
    ended = {keys[row["id"]] for row in own.jobs if row["status"] == "completed"}
    ended |= {keys[number] for number, one in own.elsewhere.items() if one.status == "completed"}
    others = ended - {job.key for job in failed}
    return list_failures([*reported, *failed], found, passed=passed | others, judged=judged)
