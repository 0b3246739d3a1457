"""Tables of how long tests take, and of reruns of disabled tests."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Bytes, Int, Json, Millis, Text, table


class _TimesOf(TypedDict):
    repository_id: Big
    base_name: Text
    config: Text


class PackedTimes(TypedDict):
    """The stored times of a base name and configuration; packing them takes time, so a thread does it."""

    files: Bytes  # zlib of JSON: seconds by file
    classes: Bytes  # the same by file and class, with a NUL between
    at: Millis  # of the newest job


class TimeRow(_TimesOf, PackedTimes):
    """How long the tests of jobs with a base name and configuration take."""


test_time = table("test_time", TimeRow, key=("repository_id", "base_name", "config"))


class TimeSourceRow(TypedDict):
    """The jobs that a repository's lists were made from."""

    repository_id: Big
    digest: Text  # of their generations
    at: Millis


test_time_source = table("test_time_source", TimeSourceRow, key=("repository_id",))
test_time_source.c.repository_id.autoincrement = False  # it is GitHub's id


class RerunRow(TypedDict):
    """How often a disabled test passed and failed in a job that reruns such tests."""

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
test_rerun_job.c.generation.autoincrement = False  # it is that of a job's results
