"""Tables of comparisons: failed jobs compared with the same elsewhere, merge bases."""

from __future__ import annotations

from typing import TypedDict

from bot.db.rows import Bool, Millis, Text, table


class ComparedRow(TypedDict):
    """What a failed job was found to be, compared with the same job elsewhere."""

    job_key: Text
    completed_at: Millis  # the job's: a later completion is compared again
    history: Text
    url: Text | None
    elsewhere: Bool


oot_compared = table("oot_compared", ComparedRow, key=("job_key",))


class MergeBaseRow(TypedDict):
    """The commit at which a pull request's head left its base branch."""

    upstream_repo: Text
    head_sha: Text
    base_ref: Text
    merge_base: Text | None  # null: GitHub knows none
    committed_at: Millis | None  # when that commit was made
    asked_at: Millis


oot_merge_base = table("oot_merge_base", MergeBaseRow, key=("upstream_repo", "head_sha", "base_ref"))
