"""The list of failures on a commit as JSON: what the page shows of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from bot.oot.pages.failure import Failure, FailureList


class FailurePlace(Struct, frozen=True):
    """Where it failed or passed."""

    label: Annotated[
        str, Meta(description="the device or name of a backend, or a kind of machine of upstream")
    ]
    upstream: bool
    passed: bool


class ListedFailure(Struct, frozen=True):
    """A failure, once, wherever it is."""

    name: Annotated[str, Meta(description="of the test, else of the job or backend")]
    is_test: bool
    blocking: bool
    word: Annotated[str, Meta(description="new, known, flaky ...; empty where there is no baseline")]
    why: str
    whose: Annotated[str, Meta(description="the label of the backend, `upstream` or `shared`")]
    infrastructure: Annotated[bool, Meta(description="whether the machine failed, not what ran on it")]
    places: list[FailurePlace]
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
        failures=[_failure(one) for one in (*found.first, *found.aside)],
    )


def _failure(one: Failure) -> ListedFailure:
    return ListedFailure(
        name=one.name,
        is_test=one.is_test,
        blocking=one.blocking,
        word=one.standing.word,
        why=one.standing.why,
        whose=one.whose,
        infrastructure=one.infra,
        places=[
            FailurePlace(label=place.label, upstream=place.upstream, passed=place.passed)
            for place in one.places
        ],
        jobs=[job.name for job in one.jobs],
        message=one.message or (one.line.text if one.line else ""),
    )
