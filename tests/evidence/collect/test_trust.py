"""Which runs are trusted, by GitHub's own word."""

from __future__ import annotations

import pytest

from bot.jobs.runs import is_trusted

OURS = {"repository_id": 7, "head_repository_id": 7, "event": "push", "head_branch": "main"}
QUEUE = {"event": "merge_group", "head_branch": "gh-readonly-queue/main/pr-12-0123abc"}


@pytest.mark.parametrize(
    ("run", "patterns", "trusted"),
    [
        ({}, (), True),
        ({"event": "schedule"}, (), True),
        ({"event": "workflow_dispatch"}, (), True),
        ({"event": "pull_request"}, (), False),
        ({"event": "pull_request_target"}, (), False),
        ({"event": "repository_dispatch"}, (), False),
        ({"head_repository_id": 8}, (), False),  # a fork's branch called main
        ({"head_repository_id": None}, (), False),
        ({"head_branch": "feature"}, (), False),
        ({"head_branch": None}, (), False),
        ({"head_branch": "release/2.1"}, ("main", "release/*"), True),
        ({"head_branch": "main"}, ("release/*",), False),
        (QUEUE, (), True),
        (QUEUE | {"head_branch": "gh-readonly-queue/feature/pr-12-0123abc"}, (), False),
        (QUEUE | {"head_branch": "gh-readonly-queue/release/2.1/pr-1-a"}, ("release/*",), True),
        (QUEUE | {"head_branch": "main"}, (), False),
    ],
)
def test_a_run_is_trusted_or_not(run, patterns, trusted):
    assert is_trusted(OURS | run, default_branch="main", patterns=patterns) is trusted


def test_without_a_known_default_branch_nothing_is_trusted():
    assert not is_trusted(OURS, default_branch=None, patterns=())
