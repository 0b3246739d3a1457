"""Objects that GitHub has announced and that not all of its servers know yet: calls about them are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.demo.github import git
from bot.demo.github.faults import ApiError, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.demo.github.api.call import ApiCall

SHA = re.compile(r"[0-9a-f]{40}")


def refuse_unknown(call: ApiCall) -> None:
    """Raise what GitHub answers to a call about a commit, pull request or run that is too young to be known."""
    known = call.now - call.state.announced_before
    if call.repository is None or not call.state.announced_before:
        return
    for sha in _commits(call):
        commit = git.resolve(call.repository, sha)
        if commit is not None and commit.at > known:
            raise ApiError(422, f"No commit found for SHA: {sha}")
    parts = call.request.match_info
    number, run = parts.get("number", ""), parts.get("run", "")
    pull = call.repository.pulls.get(int(number)) if number.isdigit() else None
    started = call.repository.runs.get(int(run)) if run.isdigit() else None
    if (pull and pull.created_at > known) or (started and started.created_at > known):
        raise not_found()


def _commits(call: ApiCall) -> Iterator[str]:
    """Yield the commits that a call names by their SHA."""
    parts = call.request.match_info
    named = " ".join(
        str(part) for part in (parts.get("ref"), parts.get("sha"), parts.get("basehead")) if part
    )
    yield from SHA.findall(f"{named} {call.body.get('head_sha', '')}")
