"""The events of CircleCI and Buildkite that lead to anything, by the names that their forms have for them."""

from __future__ import annotations

JOB_COMPLETED, WORKFLOW_COMPLETED = "job-completed", "workflow-completed"
CIRCLECI_EVENTS = (JOB_COMPLETED, WORKFLOW_COMPLETED)
AGENT_STATES = (
    "blocked",
    "connected",
    "stopping",
    "lost",
    "stopped",
    "disconnected",
)  # in the order of an agent's life
AGENT_EVENTS = tuple(f"agent.{state}" for state in AGENT_STATES)
BUILD_EVENTS = tuple(
    f"build.{word}" for word in ("scheduled", "running", "failing", "finished", "skipped", "blocked")
)
JOB_EVENTS = tuple(f"job.{word}" for word in ("scheduled", "started", "finished", "activated"))
BUILDKITE_EVENTS = (*BUILD_EVENTS, *JOB_EVENTS, *AGENT_EVENTS)
