"""What sections of pages and texts are about: a page's owner passes one of these to the other capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.core.settings import Settings
    from bot.web.asked import Asked


@dataclass(frozen=True, kw_only=True)
class PullSubject:
    """The subject of sections at `pull`: a pull request, and the head that its page shows."""

    repo: str
    number: int
    head_sha: str | None  # None before any is known
    base_ref: str | None  # the branch it is to be merged into
    github: str  # the address of GitHub's pages
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class CommitSubject:
    """The subject of sections at `commit`."""

    repo: str
    sha: str
    github: str  # the address of GitHub's pages
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class JobSubject:
    """The subject of sections at `job` and `job_json`: a job of a repository's own CI."""

    repo: str
    repository_id: int
    job_id: int
    run_id: int
    run_attempt: int
    name: str
    conclusion: str | None
    steps: Any  # as GitHub has them
    github: str
    query: Mapping[str, str]  # of the page: which lines are shown
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class CellSubject:
    """The subject of sections at `cell`: jobs of a repository's own CI on one of its commits."""

    repo: str
    repository_id: int
    sha: str
    job_ids: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class BackendRunsSubject:
    """The subject of sections at `backend_run`: runs that a backend reported on a commit."""

    repo: str
    sha: str
    run_ids: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class GridSubject:
    """The subject of sections at `grid`: a branch, the commits shown of it, and its broken columns."""

    repo: str
    repository_id: int
    branch: str
    shas: tuple[str, ...]
    broken: tuple[str, ...]  # names of columns
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class FailureStart:
    """A job that a failure began in, on a branch of upstream."""

    repo: str  # the job's
    job: str
    upstream: str
    branch: str


@dataclass(frozen=True, kw_only=True)
class FailureSubject:
    """The subject of sections at `failure`: the page of a failure."""

    signature: str
    began: tuple[FailureStart, ...]
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class RunSubject:
    """The subject of sections at `run`: a run with all its attempts."""

    repo: str
    repository_id: int
    run_id: int
    github: str


@dataclass(frozen=True, kw_only=True)
class QueueSubject:
    """The subject of sections at `queue`: what the jobs of a repository run on."""

    repo: str
    repository_id: int
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class BackendPageSubject:
    """The subject of sections at `backend`: the page of a backend."""

    repo: str
    upstreams: tuple[str, ...]  # of the settings, that may be shown


@dataclass(frozen=True, kw_only=True)
class RepositorySubject:
    """The subject of sections at `repository`: the home of a repository."""

    asked: Asked
    repo: str


@dataclass(frozen=True, kw_only=True)
class MissingSubject:
    """The subject of sections at `missing`: an address that leads to nothing, which should say what there is."""

    asked: Asked
    code: str  # of the refusal
    path: str
    repo: str  # that the address names; empty: none


@dataclass(frozen=True, kw_only=True)
class BackendsSubject:
    """The subject of sections at `comment`: the failed runs of backends, on the heads of a pull request."""

    runs: Mapping[str, frozenset[tuple[str, int]]]  # by backend in lower case: id and attempt
    url: str  # the address of this bot


@dataclass(frozen=True, kw_only=True)
class HeadSubject:
    """The subject of sections at `head` and `remarks`: a head of a pull request, in its comment and check runs."""

    repo: str
    head_sha: str
    labels: Mapping[str, str]  # what backends are called, by their names in lower case
    failing: Mapping[
        str, frozenset[tuple[str, int]]
    ]  # backends (as above) that fail: ids and attempts of the runs
    url: str  # the address of this bot
    settings: Settings
