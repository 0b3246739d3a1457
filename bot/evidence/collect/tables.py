"""Tables of collecting: artifacts, what was fetched of them and of logs, storage by day."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Int, Json, Millis, Text, partial_index, table


class ArtifactRow(TypedDict):
    """An artifact of a run."""

    repository_id: Big
    id: Big
    run_id: Big
    run_attempt: Int
    job_id: Big | None  # None: of the run, not attributed to a job
    name: Text  # from outside
    kind: Text
    size_in_bytes: Big
    digest: Text | None  # sha256:..., of uploads by the present actions
    created_at: Millis | None
    updated_at: Millis | None
    expires_at: Millis | None
    expired: Bool
    head_sha: Text
    trusted: Bool
    flags: Json[list[str]]  # what did not fit together: foreign_job, foreign_head, foreign_attempt


ci_artifact = table(
    "ci_artifact",
    ArtifactRow,
    sa.Index("ix_ci_artifact_run", "repository_id", "run_id", "id"),
    sa.Index("ix_ci_artifact_head_sha", "head_sha", "repository_id", "id"),
    sa.Index("ix_ci_artifact_name", "repository_id", "name", "id"),
    key=("repository_id", "id"),
)


class FetchRow(TypedDict):
    """The fetching of one log or artifact."""

    repository_id: Big
    kind: Text  # log | artifact
    object_id: Big
    run_id: Big
    run_attempt: Int
    job_id: Big | None
    state: Text  # see bot.jobs.collection
    tries: Int
    due_at: Millis | None  # when it is asked for again
    size: Big | None
    sha256: Text | None
    blob: Text | None
    parser: Text | None  # the kind of file it was read as
    error: Text | None  # the reason, in words
    asked_at: Millis
    done_at: Millis | None


ci_fetch = table(
    "ci_fetch",
    FetchRow,
    sa.Index("ix_ci_fetch_run", "repository_id", "run_id", "kind", "object_id"),
    sa.Index("ix_ci_fetch_asked_at", "asked_at"),
    key=("repository_id", "kind", "object_id"),
)
partial_index("ix_ci_fetch_wanted", ci_fetch.c.asked_at, where=ci_fetch.c.state == "wanted")
partial_index("ix_ci_fetch_blob", ci_fetch.c.blob, where=ci_fetch.c.blob.is_not(None))


class ListingRow(TypedDict):
    """How often the artifacts of an attempt of a run were listed."""

    repository_id: Big
    run_id: Big
    run_attempt: Int
    passes: Int
    artifacts: Int  # found by the last pass
    state: Text  # listed | forbidden | absent | skipped
    error: Text | None
    at: Millis


ci_listing = table("ci_listing", ListingRow, key=("repository_id", "run_id", "run_attempt"))


class _OfRepository(TypedDict):
    repository_id: Big


class WorkflowDay(TypedDict):
    """The artifacts of one workflow that were created on one day."""

    day: Int  # days since 1970
    workflow: Text
    artifacts: Big
    bytes: Big


class StorageDayRow(_OfRepository, WorkflowDay):
    """The artifacts of one workflow and day of a repository."""


ci_storage_day = table("ci_storage_day", StorageDayRow, key=("repository_id", "day", "workflow"))


class _UploadedBy(TypedDict):
    id: Big
    backend: Text
    backend_key: Text  # case folded
    repository_id: Big  # as the token has it, 0 where it has none


class TestedRun(TypedDict):
    """What the run of an uploaded file was for: one of our dispatches, or what the backend says of its own run."""

    dispatch_id: Text  # empty: of a run that was not dispatched
    event_type: Text | None  # of such a run: nightly, periodic or push
    # that it claims to have tested: upstream's, or the backend's own of a push
    commit_sha: Text | None


class _UploadedFile(TypedDict):
    kind: Text
    run_id: Text  # of any CI
    run_attempt: Int
    workflow: Text  # these three as the backend calls them
    job: Text
    name: Text
    size: Big
    sha256: Text
    blob: Text
    received_at: Millis


class UploadRow(_UploadedBy, TestedRun, _UploadedFile):
    """A file that a backend uploaded; identity is the token's and our dispatch's, names are the backend's."""


ci_upload = table(
    "ci_upload",
    UploadRow,
    sa.Index("ix_ci_upload_backend_key", "backend_key", "received_at"),
    sa.Index("ix_ci_upload_dispatch_id", "dispatch_id"),
    key=("id",),
)
