"""CircleCI's events in the normal form. It tells only of what has ended: workflow-completed, job-completed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.providers import tables
from bot.providers.feature import CIRCLECI, normalize_project
from bot.providers.tables import PROVIDER_JOB, PROVIDER_RUN

if TYPE_CHECKING:
    from bot.ingest.tables import Record
    from bot.providers.tables import JsonObject

CONCLUSIONS = {
    "success": "success",
    "failed": "failure",
    "error": "failure",
    "canceled": "cancelled",
    "unauthorized": "action_required",
}
REASONS = {"error": "CircleCI could not run it", "unauthorized": "not authorized to run"}
OTHER = "other"


def read_job(data: JsonObject, start: JsonObject) -> Record:
    """Return a job that ended; `start` is what every record begins with."""
    state = tables.read_text(data, "job", "status", most=tables.WORD_MOST)
    url, number = tables.read_url(data, "workflow", "url"), tables.read_number(data, "job", "number")
    values = _common(data, start, state) | {
        "job_id": tables.read_id(data, "job", "id"),
        "pipeline_id": tables.read_text(data, "pipeline", "id", most=tables.ID_MOST),
        "workflow_id": tables.read_text(data, "workflow", "id", most=tables.ID_MOST),
        "workflow_name": tables.read_text(data, "workflow", "name"),
        "job_name": tables.read_text(data, "job", "name"),
        "number": number,
        "attempt": 1,
        "reason": REASONS.get(state or ""),
        "created_at": tables.read_time(data, "pipeline", "created_at"),
        "started_at": tables.read_time(data, "job", "started_at"),
        "completed_at": tables.read_time(data, "job", "stopped_at"),
        "url": f"{url}/jobs/{number}" if url and number is not None else url,
    }
    return tables.make_record(PROVIDER_JOB, values)


def read_workflow(data: JsonObject, start: JsonObject) -> Record:
    """Return a workflow that ended."""
    state = tables.read_text(data, "workflow", "status", most=tables.WORD_MOST)
    values = _common(data, start, state) | {
        "run_id": tables.read_id(data, "workflow", "id"),
        "pipeline_id": tables.read_text(data, "pipeline", "id", most=tables.ID_MOST),
        "name": tables.read_text(data, "workflow", "name"),
        "number": tables.read_number(data, "pipeline", "number"),
        "source": tables.read_text(data, "pipeline", "trigger", "type", most=tables.WORD_MOST),
        "created_at": tables.read_time(data, "workflow", "created_at"),
        "completed_at": tables.read_time(data, "workflow", "stopped_at"),
        "url": tables.read_url(data, "workflow", "url"),
    }
    return tables.make_record(PROVIDER_RUN, values)


def _common(data: JsonObject, start: JsonObject, state: str | None) -> dict[str, Any]:
    """Return the columns that jobs and workflows share.

    Projects of CircleCI's GitHub App and of GitLab have no `vcs`, but `trigger_parameters`.
    """
    vcs, git = ("pipeline", "vcs"), ("pipeline", "trigger_parameters", "git")
    branch = tables.read_text(data, *vcs, "branch") or tables.read_text(data, *git, "branch")
    project = tables.read_id(data, "project", "slug")
    return start | {
        "provider": CIRCLECI,
        "project": normalize_project(CIRCLECI, project),
        "head_sha": tables.read_commit(data, *vcs, "revision")
        or tables.read_commit(data, *git, "checkout_sha"),
        "branch": branch,
        "tag": tables.read_text(data, *vcs, "tag") or tables.read_text(data, *git, "tag"),
        "pr_number": tables.number_of_pull(branch),
        "status": "completed",
        "conclusion": CONCLUSIONS.get(state or "", OTHER),
        "raw_state": state,
    }
