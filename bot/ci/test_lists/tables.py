"""Tables of how long tests take."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Bytes, Int, Json, Millis, Text, table


class TimeRow(TypedDict):
    """How long the tests of a job's base name and configuration take."""

    repository_id: Big
    base_name: Text
    config: Text
    files: Bytes  # zlib of JSON: seconds by file
    classes: Bytes  # the same by file and class, with a NUL between
    at: Millis  # of the newest job


test_time = table("test_time", TimeRow, key=("repository_id", "base_name", "config"))


class TimeSourceRow(TypedDict):
    """Which jobs the lists of a repository were made of."""

    repository_id: Big
    digest: Text  # of their generations
    at: Millis


test_time_source = table("test_time_source", TimeSourceRow, key=("repository_id",))


class RerunRow(TypedDict):
    """How often a disabled test passed and failed in a job that runs such tests over and over."""

    generation: Big  # of the job
    name: Text
    suite: Text
    file: Text
    green: Int
    red: Int
    flaky: Bool
    repository_id: Big
    trusted: Bool
    platforms: Json[list[str]]  # what the job's platform may be called
    at: Millis


test_rerun = table(
    "test_rerun",
    RerunRow,
    sa.Index("ix_test_rerun_at", "repository_id", "at"),
    key=("generation", "name", "suite", "file"),
)


class RerunJobRow(TypedDict):
    """A job whose reruns were counted."""

    generation: Big
    at: Millis


test_rerun_job = table("test_rerun_job", RerunJobRow, key=("generation",))
