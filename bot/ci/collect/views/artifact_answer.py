"""An artifact in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from bot.ci.collect import artifact_text
from bot.ci.collect.parse import artifact_kinds
from bot.ci.collect.states import State
from bot.ci.collect.tables import ArtifactRow
from bot.web.answers import fill, one_of
from bot.web.row_answers import RowAnswer

if TYPE_CHECKING:
    from bot.ci.collect.store.artifacts import ListedArtifact


class Artifact(RowAnswer, row=ArtifactRow, without=("repository_id",), frozen=True, kw_only=True):
    """An artifact of a run."""

    job_id: Annotated[int | None, Meta(description="null: it could not be attributed to a job")]
    name: Annotated[str, Meta(description="as the run chose it")]
    kind: Annotated[str, one_of(sorted(artifact_kinds.KNOWN))]
    trusted: Annotated[bool, Meta(description="of the repository's own run on a trusted branch")]
    state: Annotated[str, one_of([state.value for state in State])]
    reason: Annotated[str, Meta(description="the state in words")]
    url: Annotated[str, Meta(description="GitHub's page to download it from")]


def artifact_answer(one: ListedArtifact, repo: str, github: str) -> Artifact:
    """Return an artifact as it is sent."""
    url = artifact_text.page_url(github, repo, one.artifact)
    return fill(Artifact, one.artifact, state=one.state, reason=one.reason, url=url)
