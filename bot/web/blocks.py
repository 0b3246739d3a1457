"""Blocks: what a feature adds to the page or text of another one, and what such a page or text is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bot.core import escaping
from bot.core.feature import sections

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.charts import Timeline
    from bot.web.parameters import Query

ADMINISTRATOR = "the administrator"  # who sent a form, in what is kept of it
HERE = "https://localhost"  # stands before a path of ours while it is checked
Tone = Literal["good", "warn", "bad", "wait", "idle"]


@dataclass(frozen=True, kw_only=True)
class PullSubject:
    """A pull request, and the head that its page shows."""

    repo: str
    number: int
    head_sha: str | None  # None before any is known
    base_ref: str | None  # the branch it is to be merged into
    github: str  # the address of GitHub's pages
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class CommitSubject:
    """A commit that a page is about."""

    repo: str
    sha: str
    github: str  # the address of GitHub's pages
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class JobSubject:
    """A job of a repository's own CI."""

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
    """Jobs of a repository's own CI on one of its commits."""

    repo: str
    repository_id: int
    sha: str
    job_ids: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class BackendRunsSubject:
    """Runs that a backend reported on a commit."""

    repo: str
    sha: str
    run_ids: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class GridSubject:
    """A branch, the commits shown of it, and its broken columns."""

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
    """A failure, and where it began."""

    signature: str
    began: tuple[FailureStart, ...]
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class RunSubject:
    """A run with all its attempts."""

    repo: str
    repository_id: int
    run_id: int
    github: str


@dataclass(frozen=True, kw_only=True)
class BackendPageSubject:
    """A backend that a page is about."""

    repo: str
    upstreams: tuple[str, ...]  # of the settings, that may be shown


@dataclass(frozen=True, kw_only=True)
class MissingSubject:
    """The subject of sections at `missing`: an address that leads to nothing, which should say what there is."""

    query: Query
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


@dataclass(frozen=True, kw_only=True)
class BlockLine:
    """One line of a block; all of it may come from outside: it is escaped where it is shown."""

    text: str
    url: str | None = None  # http(s), or a path on this bot; anything else is not linked
    tone: Tone | None = None  # its sign and colour

    @property
    def href(self) -> str | None:
        """The address to link, None where there is none that is safe."""
        return safe_address(self.url)


@dataclass(frozen=True, kw_only=True)
class BlockForm:
    """A button for people who are signed in; its texts may come from outside."""

    action: str  # below /admin: the address of one of the features' forms
    label: str
    fields: Mapping[str, str]
    about: str = ""  # what it does, beside the button


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """Some lines of a log; their text comes from outside: without control characters, and escaped where it is shown."""

    page: str  # of the whole log, a path on this bot
    first: int  # number of the first line
    lines: tuple[str, ...]
    marked: int  # number of the line that it is about


@dataclass(frozen=True, kw_only=True)
class Block:
    """A heading with some lines."""

    heading: str
    lines: tuple[BlockLine, ...]
    excerpt: Excerpt | None = None
    last: bool = False  # shown below those that say how it went
    timeline: Timeline | None = None  # shown below the lines
    folded: tuple[BlockLine, ...] = ()  # shown when they are asked for
    summary: str = ""  # of those
    forms: tuple[BlockForm, ...] = ()  # where the page has forms


@dataclass(frozen=True, kw_only=True)
class CommitAbout:
    """What is known of a commit itself; texts come from outside."""

    title: str
    author: str
    branch: str
    at: int  # epoch milliseconds
    parent: str | None
    pull: int | None  # the pull request that it merged


@dataclass(frozen=True, kw_only=True)
class GridNotes:
    """What stands beside the columns and commits of a grid."""

    columns: Mapping[str, tuple[BlockLine, ...]] = field(default_factory=dict)  # of broken ones
    forms: Mapping[str, BlockForm] = field(default_factory=dict)  # of these, by the name of the column
    commits: Mapping[str, tuple[BlockLine, ...]] = field(default_factory=dict)  # by SHA


@dataclass(frozen=True, kw_only=True)
class JobLine:
    """What a section at `comment` says of a job; all of it may come from outside: it is escaped where it is shown."""

    run_id: str
    run_attempt: int
    job: str
    words: str
    code: str = ""  # a line of the job's log
    place: str = ""  # the text of the link
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class TestMark:
    """A test that failed on a backend at a line of the source; its texts come from outside."""

    backend: str  # in lower case
    job: str
    file: str  # as its report names it: relative to some folder, or of the machine it ran on
    line: int
    name: str  # with its suite
    message: str


@dataclass(frozen=True, kw_only=True)
class HeadTests:
    """What a section at `head` says of a head."""

    marks: tuple[TestMark, ...] = ()  # in order; not of tests that fail without the change, or are flaky
    thin: Mapping[str, str] = field(
        default_factory=dict
    )  # backends that passed with few tests, and with how many


@dataclass(frozen=True, kw_only=True)
class AdminSection:
    """A section of the administrator's page: a template of the feature, which sees this as `section`."""

    template: str
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class FormDone:
    """The outcome of a form of the administrator."""

    words: str = ""  # shown at the top of /admin
    path: str = ""  # on this bot, to be shown instead of /admin


def safe_address(url: str | None) -> str | None:
    """Return an address that may be linked, http(s) or a path on this bot; None for any other."""
    if url and url.startswith("/") and not url.startswith("//"):
        address = escaping.url(f"{HERE}{url}")
        return address and address.removeprefix(HERE)
    return escaping.url(url)


async def head_tests(features: Features, tx: Transaction, subject: HeadSubject) -> HeadTests:
    """Return what the first feature that has a section there says of a head's tests."""
    for add in sections(features, "head"):
        head: HeadTests = await add(tx, subject)
        return head
    return HeadTests()


async def head_remarks(features: Features, tx: Transaction, subject: HeadSubject) -> tuple[BlockLine, ...]:
    """Return the further lines that a pull request's comment has about a head."""
    remarks: list[BlockLine] = []
    for add in sections(features, "remarks"):
        remarks += await add(tx, subject)
    return tuple(remarks)


async def job_lines(
    features: Features, tx: Transaction, subject: BackendsSubject
) -> dict[str, list[JobLine]]:
    """Return what features say of backends' failed jobs, by backend in lower case."""
    by_backend: dict[str, list[JobLine]] = {}
    for add in sections(features, "comment") if subject.runs else ():
        for backend, lines in (await add(tx, subject)).items():
            by_backend.setdefault(backend, []).extend(lines)
    return by_backend


async def admin_sections(features: Features, tx: Transaction, settings: Settings) -> list[AdminSection]:
    """Return what features add to the administrator's page."""
    return [await add(tx, settings) for add in sections(features, "admin")]


def order_blocks(*parts: Iterable[Block]) -> list[Block]:
    """Return the blocks of several parts in this order; those that are `last` come after all others."""
    return sorted((block for part in parts for block in part), key=lambda block: block.last)
