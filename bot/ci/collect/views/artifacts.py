"""GET /api/ci/artifacts/{owner}/{repo}: a repository's artifacts, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from bot.ci.collect import job_reads
from bot.ci.collect.parse import artifact_kinds
from bot.ci.collect.store import artifacts
from bot.ci.collect.store.artifacts import Choice
from bot.ci.collect.views.artifact_answer import Artifact, artifact_answer
from bot.core.errors import Rejected
from bot.core.links import web_url
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, matching
from bot.web.refusals import Refused
from bot.web.view import Json, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.collect.store.artifacts import ListedArtifact
    from bot.web.asked import Asked

ROWS = 100  # unless ?limit= says otherwise
LONGEST_NAME = 500  # characters
NOTHING = Refused(404, "not_found", "nothing of that name or id may be shown")


class Artifacts(Answer, frozen=True, kw_only=True):
    """Artifacts, newest first"""

    artifacts: list[Artifact]
    next: Annotated[str | None, Meta(description="the `before` of the following page")]


@dataclass(frozen=True, kw_only=True)
class FoundArtifacts:
    """A part of a repository's artifacts."""

    repo: str
    github: str
    artifacts: list[ListedArtifact]
    more: bool  # whether there are older ones


def _run_id(text: str) -> int:
    number = parameters.number(text)
    if not number:
        raise Rejected(400, "invalid_parameter", "run_id must be one of GitHub's ids")
    return number


RUN_ID = declare.parsed("run_id", op.Number, "only of this run", parse=_run_id, default=None)
SHA = declare.parsed(
    "sha",
    Annotated[str, matching(parameters.SHA)],
    "only of this commit, or its beginning",
    parse=parameters.commit,
    default=None,
)
NAME = declare.text("name", "only of this name", most=LONGEST_NAME)
KIND = declare.choice("kind", ["", *sorted(artifact_kinds.KNOWN)], "only of this kind")
LIMIT = declare.limit(ROWS)
BEFORE = declare.before([False])


async def read_artifacts(asked: Asked) -> FoundArtifacts:
    """Read a repository's artifacts; raises Rejected 404."""
    repo, limit, position = asked[REPO], asked[LIMIT], asked[BEFORE]
    choice = Choice(
        same={"run_id": asked[RUN_ID], "name": asked[NAME] or None, "kind": asked[KIND] or None},
        sha=asked[SHA],
        before=int(position[0]) if position else None,
    )
    owners = await job_reads.visible_to(asked, repo)
    if not owners:
        raise NOTHING.because(f"nothing of {repo} may be shown")
    found = await artifacts.list_artifacts(asked.tx, owners, choice, limit=limit + 1)
    return FoundArtifacts(
        repo=repo,
        github=web_url(asked.settings.github_api_url),
        artifacts=found[:limit],
        more=len(found) > limit,
    )


def answer(found: FoundArtifacts) -> Artifacts:
    """Return the artifacts as they are sent."""
    last = found.artifacts[-1].artifact["id"] if found.more else None
    return Artifacts(
        artifacts=[artifact_answer(one, found.repo, found.github) for one in found.artifacts],
        next=None if last is None else parameters.following([last]),
    )


VIEW = View(
    read=read_artifacts,
    parameters=(REPO, RUN_ID, SHA, NAME, KIND, LIMIT, BEFORE),
    json=Json(
        path="/api/ci/artifacts/{owner}/{repo}",
        answer=answer,
        content=Artifacts,
        name="ciArtifacts",
        summary="Artifacts of a repository",
        topic=op.CI,
        refusals=(NOTHING,),
    ),
)
