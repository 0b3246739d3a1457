"""Is this check run one that GitHub would take? Every rule that answers 422."""

from __future__ import annotations

from typing import Any

from bot.demo.github.refusals import Refused, invalid
from bot.demo.github.times import from_iso

CONCLUSIONS = {
    "action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out",
}  # fmt: skip
STATUSES = {"queued", "in_progress", "completed"}
LONGEST_TEXT = 65_535  # bytes of summary and of text
MOST_ANNOTATIONS = 50  # in one request
LEVELS = {"notice", "warning", "failure"}
MOST_ACTIONS = 3
ACTION_LENGTHS = {"label": 20, "description": 40, "identifier": 20}
LONGEST_MESSAGE = 64 * 1024  # bytes of an annotation's message and raw details
LONGEST_TITLE = 255  # characters of an annotation's title


def examine(body: dict[str, Any], *, creating: bool) -> None:
    """Refuse what GitHub refuses, whether the run is made or changed."""
    for name in ("name", "head_sha") if creating else ():
        if not (isinstance(body.get(name), str) and body[name].strip()):
            raise Refused(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
    _state(body)
    _strings(body)
    if body.get("output") is not None:
        _output(body["output"], creating=creating)
    _actions(body.get("actions") or [])


def _state(body: dict[str, Any]) -> None:
    status, conclusion = body.get("status"), body.get("conclusion")
    if status is not None and status not in STATUSES:
        raise _bad("status", f"{status} is not one of {sorted(STATUSES)}")
    if conclusion is not None and conclusion not in CONCLUSIONS:
        raise _bad("conclusion", f"{conclusion} is not one of {sorted(CONCLUSIONS)}")
    if conclusion is None and (status == "completed" or body.get("completed_at")):
        raise _bad("conclusion", "is required of a completed check run", "missing_field")


def _strings(body: dict[str, Any]) -> None:
    for name in ("name", "head_sha", "external_id", "details_url"):
        if body.get(name) is not None and not isinstance(body[name], str):
            raise _bad(name, "must be a string")
    if body.get("details_url") and not body["details_url"].startswith(("http://", "https://")):
        raise _bad("details_url", "must use the http or https scheme")
    for name in ("started_at", "completed_at"):
        if body.get(name) is not None:
            try:
                from_iso(body[name])
            except (ValueError, TypeError):
                raise _bad(name, "is not an ISO 8601 time with a zone") from None


def _output(output: Any, *, creating: bool) -> None:
    if not isinstance(output, dict):
        raise _bad("output", "must be an object")
    for name in ("title", "summary") if creating else ("summary",):
        if not (isinstance(output.get(name), str) and output[name]):
            raise _bad(f"output.{name}", "is required", "missing_field")
    for name in ("summary", "text"):
        if len((output.get(name) or "").encode()) > LONGEST_TEXT:
            raise _bad(f"output.{name}", f"exceeds a maximum bytesize of {LONGEST_TEXT}")
    annotations = output.get("annotations") or []
    if len(annotations) > MOST_ANNOTATIONS:
        raise _bad("output.annotations", f"may be at most {MOST_ANNOTATIONS} in a request")
    for annotation in annotations:
        _annotation(annotation)


def _annotation(annotation: dict[str, Any]) -> None:
    for name in ("path", "message"):
        if not (isinstance(annotation.get(name), str) and annotation[name]):
            raise _bad(f"annotation.{name}", "is required", "missing_field")
    for name in ("start_line", "end_line"):
        if not isinstance(annotation.get(name), int):
            raise _bad(f"annotation.{name}", "is required", "missing_field")
    if annotation.get("annotation_level") not in LEVELS:
        raise _bad("annotation.annotation_level", f"is not one of {sorted(LEVELS)}")
    columns = "start_column" in annotation or "end_column" in annotation
    if columns and annotation["start_line"] != annotation["end_line"]:
        raise _bad("annotation.start_column", "is allowed only within one line")
    for name in ("message", "raw_details"):
        if len((annotation.get(name) or "").encode()) > LONGEST_MESSAGE:
            raise _bad(f"annotation.{name}", "exceeds 64 KB")
    if len(annotation.get("title") or "") > LONGEST_TITLE:
        raise _bad("annotation.title", f"is over {LONGEST_TITLE} characters")


def _actions(actions: Any) -> None:
    if not isinstance(actions, list) or len(actions) > MOST_ACTIONS:
        raise _bad("actions", f"may be at most {MOST_ACTIONS}")
    for action in actions:
        for name, longest in ACTION_LENGTHS.items():
            value = action.get(name) if isinstance(action, dict) else None
            if not (isinstance(value, str) and value):
                raise _bad(f"actions.{name}", "is required", "missing_field")
            if len(value) > longest:
                raise _bad(f"actions.{name}", f"is over {longest} characters")


def _bad(field: str, problem: str, code: str = "invalid") -> Refused:
    return invalid(f"{field} {problem}", resource="CheckRun", field=field, code=code)
