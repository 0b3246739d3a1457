"""Failures on a commit, as features know them: of its jobs and tests, and those shared with backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bot.core.feature import sections

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.blocks import BlockLine, Tone


class TestCase(NamedTuple):
    """A test as reports name it."""

    suite: str
    name: str

    def is_reported_as(self, suite: str | None, name: str) -> bool:
        """Whether a backend's report means this test: it may name the whole path of its suite, or none."""
        if name != self.name:
            return False
        return not suite or not self.suite or suite.endswith(self.suite) or self.suite.endswith(suite)


class JobKey(NamedTuple):
    """An attempt of a job, as GitHub, backends and logs name it."""

    repo: str  # in lower case
    run_id: str  # other CIs have ids of all kinds
    run_attempt: int
    name: str


@dataclass(frozen=True, kw_only=True)
class FailuresSubject:
    """The subject of sections at `failures`: a commit, and the jobs of its own repository that fail on it."""

    repo: str
    sha: str
    base_ref: str | None  # of the head of a pull request: the branch it is to be merged into
    of_pull: bool
    upstream_jobs: Mapping[int, JobKey]  # by GitHub's id; of other CIs by the number in the grid
    github: str  # the address of GitHub's pages
    settings: Settings
    own: bool = True  # also the failures of its own jobs; otherwise only those of backends


@dataclass(frozen=True, kw_only=True)
class FailureStanding:
    """How a failure compares with the same elsewhere; texts may come from outside."""

    word: str  # "new", "known", "flaky"; empty where there is nothing to compare with
    why: str
    url: str | None = None
    tone: Tone = "bad"


@dataclass(frozen=True, kw_only=True)
class ReasonLine:
    """The line of a log that says why a job failed; its texts come from outside."""

    kind: str
    text: str
    place: str  # where it stands, the text of the link
    url: str
    page: str  # of the job
    infra: bool = False  # whether the machine failed, not what ran on it


@dataclass(frozen=True, kw_only=True)
class JobRemark:
    """What a feature says of a failed job."""

    job: JobKey
    line: ReasonLine | None = None
    standing: FailureStanding | None = None
    alone: bool = False  # listed also where the page knows of no such job


@dataclass(frozen=True, kw_only=True)
class FailurePlace:
    """Where a test failed or passed: a backend, or jobs of upstream on one kind of machine."""

    label: str
    passed: bool
    upstream: bool = False


@dataclass(frozen=True, kw_only=True)
class FailingTest:
    """A test that failed on a commit, listed once for all backends; its texts come from outside."""

    name: str  # with file and suite
    cases: frozenset[TestCase]  # what it is called: on another device it may have another name
    url: str
    message: str
    standing: FailureStanding | None
    places: tuple[FailurePlace, ...]
    jobs: frozenset[JobKey]  # in which it failed
    on: Mapping[str, FailureStanding] = field(default_factory=dict)  # by repository in lower case
    words: str = ""  # where it fails and passes


@dataclass(frozen=True, kw_only=True)
class Failures:
    """What features say of a commit's failures."""

    jobs: Sequence[JobRemark] = ()
    tests: Sequence[FailingTest] = ()  # the first of them, those first that are likely the change's
    tests_left: int = 0  # the rest
    links: Sequence[BlockLine] = field(default_factory=tuple)  # where to read on


@dataclass(frozen=True, kw_only=True)
class FailedJob:
    """A failed job of a backend, with all tests that failed in it: suite and name."""

    key: str
    head_sha: str
    tests: frozenset[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class SharedFailuresSubject:
    """Failed jobs of a backend."""

    jobs: tuple[FailedJob, ...]
    devices: frozenset[str]  # further words for its device in the names of tests, in lower case


async def read_failures(features: Features, tx: Transaction, subject: FailuresSubject) -> Failures:
    """Return what features say of a commit's failures, for the texts of check runs and comments."""
    return merge_failures([await add(tx, subject) for add in sections(features, "failures")])


def merge_failures(parts: Sequence[Failures]) -> Failures:
    """Return what several say of a commit's failures as one."""
    return Failures(
        jobs=[remark for part in parts for remark in part.jobs],
        tests=[test for part in parts for test in part.tests],
        tests_left=sum(part.tests_left for part in parts),
        links=[link for part in parts for link in part.links],
    )
