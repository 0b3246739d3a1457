"""The list of failures on a commit as JSON: what the page shows of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from bot.oot.verdict.failure import Failure, FailureList


class FailurePlace(Struct, frozen=True):
    """Where it failed or passed."""

    label: Annotated[
        str, Meta(description="the device or name of a backend, or a kind of machine of upstream")
    ]
    upstream: bool
    passed: bool


class Compared(Struct, frozen=True):
    """How it compares on one backend, or on upstream."""

    repo: Annotated[str, Meta(description="in lower case")]
    word: Annotated[str, Meta(description="what it is counted as there; empty where there is no baseline")]


class ListedFailure(Struct, frozen=True):
    """A failure, once, wherever it is."""

    name: Annotated[str, Meta(description="of the test, else of the job or backend")]
    is_test: bool
    count: Annotated[
        int, Meta(description="how many it stands for: tests of a job that were counted without names")
    ]
    blocking: bool
    word: Annotated[str, Meta(description="new, known, flaky ...; empty where there is no baseline")]
    why: str
    whose: Annotated[str, Meta(description="the label of the backend, `upstream` or `shared`")]
    infrastructure: Annotated[bool, Meta(description="whether the machine failed, not what ran on it")]
    places: list[FailurePlace]
    compared: list[Compared]
    jobs: list[str]
    message: Annotated[str, Meta(description="of the test, else the line of the log")]


class PullFailures(Struct, frozen=True):
    """The failures on a commit, those first that are likely the change's."""

    total: int
    summary: str
    failures: list[ListedFailure]


def answer_failures(found: FailureList) -> PullFailures:
    """Return the list as JSON."""
    return PullFailures(
        total=found.total,
        summary=found.summary if found.total else "",
        failures=[_failure(one) for one in found.all],
    )


def _failure(one: Failure) -> ListedFailure:
    return ListedFailure(
        name=one.name,
        is_test=one.is_test,
        count=one.count,
        blocking=one.blocking,
        word=one.standing.word,
        why=one.standing.why,
        whose=one.whose,
        infrastructure=one.infra,
        places=[
            FailurePlace(label=place.label, upstream=place.upstream, passed=place.passed)
            for place in one.places
        ],
        compared=[Compared(repo=repo, word=one.kind_on(repo)) for repo in one.on],
        jobs=[job.name for job in one.jobs],
        message=one.message or (one.line.text if one.line else ""),
    )
