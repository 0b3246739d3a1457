"""Tables of searches for culprits, and of their steps."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Float, Int, Json, Millis, Text, partial_index, table


class BisectKey(TypedDict):
    """The id of a search."""

    id: Text  # as it stands in the address of its page


class BisectRepository(TypedDict):
    """The repository that is searched."""

    upstream_repo: Text


class BisectBranch(TypedDict):
    """The branch that is searched."""

    repository_id: Big
    branch: Text


class BisectSignal(TypedDict):
    """What is good or bad on a commit of the branch."""

    backend: Text  # owner/repo; empty: upstream's own CI
    job: Text  # workflow / job, without shard and runner
    test: Text  # suite::name, or a name; empty: the job as a whole
    signature: Text  # of the failure that is searched for; empty: any


class Signal(BisectBranch, BisectSignal):
    """A job of upstream or of a backend, one of its tests, or one way in which it fails."""


class BisectEnds(TypedDict):
    """The commits that it lies between."""

    good_sha: Text
    bad_sha: Text


class BisectState(TypedDict):
    """How far it is."""

    state: Text  # running | waiting | found | not_found | gave_up | cancelled
    why: Text  # a sentence for people: what it waits for, or how it ended


class BisectRequest(TypedDict):
    """Who asked for it, and why."""

    requested_by: Text  # a login, `the administrator`, or `ootbot` where the entry says auto
    reason: Text
    comment_on: Big | None  # the pull request or issue it was asked for in


class BisectTerms(TypedDict):
    """How it is searched: fixed when it begins."""

    flaky_rate: Float  # of the job on this branch, within two weeks
    bad_signature: Text | None  # how the bad end fails, where a log says so, and of which kind that is
    bad_kind: Text | None
    moved: Int  # how often the good end failed, and the search began further back


class BisectUse(TypedDict):
    """What it took."""

    used: Int  # steps that were sent
    waits_until: Millis | None  # when it goes on, where that is known


class BisectResult(TypedDict):
    """What it found."""

    culprit_sha: Text | None  # the first bad commit
    parent_sha: Text | None  # the good commit before it
    confidence: Text | None  # commit | range
    suspects: Json[list[str]] | None  # every commit that it may be, oldest first
    good_runs: Int
    bad_runs: Int
    pr_number: Big | None  # the culprit's
    author: Text | None
    title: Text | None
    files: Json[list[str]] | None  # that it changed: the first of them, once GitHub has told


class BisectFollowed(TypedDict):
    """What became of the culprit."""

    mended_sha: Text | None  # a commit that reverts or fixes it, by its words


class BisectTimes(TypedDict):
    """When it began, changed and ended."""

    created_at: Millis
    updated_at: Millis
    ended_at: Millis | None


class BisectRow(
    BisectKey, BisectRepository, BisectBranch, BisectSignal, BisectEnds, BisectState, BisectRequest, BisectTerms,
    BisectUse, BisectResult, BisectFollowed, BisectTimes,
):  # fmt: skip
    """A search for the commit that broke something."""


bisect = table(
    "bisect",
    BisectRow,
    sa.Index("ix_bisect_repository", "repository_id", "created_at"),
    sa.Index("ix_bisect_culprit", "culprit_sha", "repository_id"),
    key=("id",),
)
SIGNAL = tuple(bisect.c[name] for name in ("repository_id", "branch", "backend", "job", "test", "signature"))
OPEN = bisect.c.state.in_([sa.literal_column("'running'"), sa.literal_column("'waiting'")])
partial_index("ux_bisect_open", *SIGNAL, where=OPEN, unique=True)


class StepKey(TypedDict):
    """Which step of which search."""

    bisect_id: Text
    number: Int  # from 1


class StepCommit(TypedDict):
    """What is run, and why."""

    sha: Text
    purpose: Text  # split | confirm_good | confirm_bad


class StepSent(TypedDict):
    """How it was sent."""

    delivery_id: Text | None  # of the dispatch to a backend
    dispatch_id: Text | None
    run_id: Big | None  # of upstream's own run that is run again, and the attempt it was at
    from_attempt: Int | None
    tag: Text | None  # that was created instead


class StepOutcome(TypedDict):
    """What came of it."""

    # good | bad | unbuildable | no_result | silent | refused; null: under way
    outcome: Text | None
    detail: Text | None


class StepTimes(TypedDict):
    """When it was recorded, sent and ended."""

    created_at: Millis
    sent_at: Millis | None
    ended_at: Millis | None


class StepRow(StepKey, StepCommit, StepSent, StepOutcome, StepTimes):
    """A commit that a search had run."""


bisect_step = table("bisect_step", StepRow, key=("bisect_id", "number"))
partial_index("ix_bisect_step_open", bisect_step.c.bisect_id, where=bisect_step.c.outcome.is_(None))
sa.Index("ix_bisect_step_sent", bisect_step.c.created_at)
sa.Index("ix_bisect_step_dispatch", bisect_step.c.dispatch_id)


class CommentRow(TypedDict):
    """Our comment on the culprit's pull request."""

    bisect_id: Text
    upstream_repo: Text
    pr_number: Big
    comment_id: Big | None  # null: not made yet
    digest: Text  # of what it says
    writing_until: Millis  # as those of our other comment: see bot.oot.publish.rows
    lost_until: Millis


bisect_comment = table("bisect_comment", CommentRow, key=("bisect_id",))
