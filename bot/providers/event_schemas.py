"""What an event of another CI has to say, for the API's document: events of other kinds are taken as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.providers import events
from bot.providers.buildkite import ADDRESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.web.operations import Schema

_PART: Schema = {"type": ["object", "null"]}
_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_ID: Schema = {
    "type": "string",
    "pattern": "^[A-Za-z0-9._:-]{1,91}$",
}  # stored as `circleci:<id>`, 100 characters


def _with(**members: Schema) -> Schema:
    """Return the schema of an object that has these members."""
    return {"type": "object", "required": [*members], "properties": members}


def _of_kinds(member: str, *cases: tuple[Sequence[str], Schema], properties: Schema) -> Meta:
    """Return the constraint of events whose `member` names their kind, of which each needs something else."""
    chosen: Schema = {}
    for kinds, needed in reversed(cases):
        named = {"required": [member], "properties": {member: {"enum": [*kinds]}}}
        chosen = {"if": named, "then": needed, "else": chosen}
    return Meta(extra_json_schema={"properties": properties} | chosen)


_JOB = _with(id=_ID, project=_with(slug=_TEXT), job=_with(id=_TEXT))
_WORKFLOW = _with(id=_ID, project=_with(slug=_TEXT), workflow=_with(id=_TEXT))
_WORKFLOW_ALONE = _WORKFLOW | {"properties": _WORKFLOW["properties"] | {"job": {"type": "null"}}}
CIRCLECI_EVENT = Annotated[
    dict[str, Any],
    _of_kinds(
        "type",
        ((events.JOB_COMPLETED,), _JOB),
        ((events.WORKFLOW_COMPLETED,), {"anyOf": [_JOB, _WORKFLOW_ALONE]}),
        properties={
            "id": {"anyOf": [_ID, {"type": "null"}]},
            "job": _PART,
            "workflow": _PART,
            "project": _PART,
        },
    ),
]

_ADDRESS: Schema = {"type": "string", "pattern": f"^{ADDRESS.pattern}"}
_PIPELINE = _with(slug={"type": "string", "minLength": 1})
BUILDKITE_EVENT = Annotated[
    dict[str, Any],
    _of_kinds(
        "event",
        (events.AGENT_EVENTS, _with(agent=_with(id=_TEXT))),
        (events.JOB_EVENTS, _with(job=_with(id=_TEXT), build=_with(web_url=_ADDRESS), pipeline=_PIPELINE)),
        (events.BUILD_EVENTS, _with(build=_with(id=_TEXT, web_url=_ADDRESS), pipeline=_PIPELINE)),
        properties={"job": _PART, "build": _PART, "pipeline": _PART, "agent": _PART},
    ),
]
