"""The addresses of other CIs: their events come in, jobs and runs can be read as records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ingest import record_store, repositories, views
from bot.ingest.webhooks import Taken, make_receiver
from bot.jobs import rows as job_rows
from bot.jobs.settings import CollectSettings
from bot.providers import admission, feature
from bot.providers.buildkite import BUILD_ADDRESS
from bot.providers.tables import PROVIDER_JOB, PROVIDER_RUN, is_trusted
from bot.web import addresses, openapi, parameters
from bot.web.answers import Answer, fill_struct
from bot.web.bodies import post_routes
from bot.web.openapi import DeclaredRefusal
from bot.web.parameters import REPO
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ingest.tables import RecordType
    from bot.ingest.webhooks import Sender
    from bot.web.openapi import Schema
    from bot.web.parameters import Query

_PART: Schema = {"type": ["object", "null"]}
_TEXT: Schema = {"type": "string", "pattern": r"\S"}
# stored as `circleci:<id>`, 100 characters
_ID: Schema = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,91}$"}
_ADDRESS: Schema = {"type": "string", "pattern": f"^{BUILD_ADDRESS.pattern}"}
ID_MOST = 500  # characters
TRUSTED = {
    "trusted": Annotated[
        bool, Meta(description="on a trusted branch, for no pull request: CI_TRUSTED_BRANCHES")
    ]
}
JOB_STRUCT, RUN_STRUCT = (views.make_struct(kind, TRUSTED) for kind in (PROVIDER_JOB, PROVIDER_RUN))
NOTHING_HELD = DeclaredRefusal(404, "not_found", "nothing of another CI is held of this repository")
LIMIT = parameters.limit(views.PAGE_ROWS)
BEFORE = parameters.before((False, True))
IDENTIFIED = parameters.in_path(
    "id",
    Annotated[str, Meta(max_length=ID_MOST)],
    "its id at the provider; of a commit status the SHA, a slash and the context",
    parse=lambda text: text[:ID_MOST],
    default="",
)
OF_CIRCLECI = openapi.Caller(
    "circleciSignature",
    "`v1=` and the HMAC of the body's bytes with the webhook's secret, in hexadecimal digits",
    header="circleci-signature",
)
OF_BUILDKITE = openapi.Caller(
    "buildkiteSignature",
    "`timestamp=`, seconds since 1970, `,signature=` and the HMAC of these, a dot and the body's bytes with the "
    "webhook's token, in hexadecimal digits",
    header="X-Buildkite-Signature",
)
CIRCLECI_EXAMPLE = {
    "id": "3888f21b-eaa7-38e3-8f3d-75a63bba8895",
    "type": "job-completed",
    "project": {"slug": "gh/example-org/project"},
    "job": {"id": "8bd71c28-4969-3677-8940-3e3a61c46660", "number": 136, "name": "test", "status": "failed"},
    "workflow": {"id": "fda08377-fe7e-46b1-8992-3a7aaecac9c3", "name": "ci"},
}
BUILDKITE_EXAMPLE = {
    "event": "job.finished",
    "job": {
        "id": "018f0a6e-5c1f-4f0e-9d39-6a1d5a3f9b11",
        "type": "script",
        "name": ":npu: Test",
        "state": "failed",
    },
    "build": {
        "id": "018e0a6e-5c1f-4f0e-9d39-6a1d5a3f9b12",
        "web_url": "https://buildkite.com/org/fastcheck/builds/77",
    },
    "pipeline": {"slug": "fastcheck"},
}


class ProviderJobs(Answer, frozen=True, kw_only=True):
    """Jobs of other CIs, those heard of last first; `next` is the `before` of the page after, null at the end"""

    rows: list[JOB_STRUCT]  # type: ignore[valid-type]
    next: str | None


class ProviderRuns(Answer, frozen=True, kw_only=True):
    """Their workflows and builds, those heard of last first; `next` as of jobs"""

    rows: list[RUN_STRUCT]  # type: ignore[valid-type]
    next: str | None


def _with(**members: Schema) -> Schema:
    """Return the schema of an object that has these members."""
    return {"type": "object", "required": [*members], "properties": members}


def _of_kinds(member: str, *cases: tuple[Sequence[str], Schema], properties: Schema) -> Meta:
    """Return the schema of events that need different members by their kind, which `member` names."""
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
        ((feature.JOB_COMPLETED,), _JOB),
        ((feature.WORKFLOW_COMPLETED,), {"anyOf": [_JOB, _WORKFLOW_ALONE]}),
        properties={
            "id": {"anyOf": [_ID, {"type": "null"}]},
            "job": _PART,
            "workflow": _PART,
            "project": _PART,
        },
    ),
]
_PIPELINE = _with(slug={"type": "string", "minLength": 1})
BUILDKITE_EVENT = Annotated[
    dict[str, Any],
    _of_kinds(
        "event",
        (feature.AGENT_EVENTS, _with(agent=_with(id=_TEXT))),
        (feature.JOB_EVENTS, _with(job=_with(id=_TEXT), build=_with(web_url=_ADDRESS), pipeline=_PIPELINE)),
        (feature.BUILD_EVENTS, _with(build=_with(id=_TEXT, web_url=_ADDRESS), pipeline=_PIPELINE)),
        properties={"job": _PART, "build": _PART, "pipeline": _PART, "agent": _PART},
    ),
]


async def _fill_rows(query: Query, struct: type[Struct], rows: list[dict[str, Any]]) -> list[Struct]:
    """Return rows as answers, with whether each is trusted."""
    ids = await repositories.read_ids(query.tx, query[REPO])
    repository = await job_rows.repository(query.tx, ids) if ids else None
    default = repository["default_branch"] if repository else None
    patterns = query.settings.of(CollectSettings).ci_trusted_branches
    return [
        fill_struct(struct, row, trusted=is_trusted(row, default_branch=default, patterns=patterns))  # type: ignore[arg-type]
        for row in rows
    ]


def _list_view(
    kind: RecordType[Any], struct: type[Struct], answer: Any, name: str, summary: str
) -> View[Any]:
    async def read(query: Query) -> Any:
        before = query[BEFORE]
        rows, more = await record_store.read_record_page(
            query.tx, kind, query[REPO], hidden=query.hidden, before=before, limit=query[LIMIT]
        )
        if not rows and before is None:
            raise NOTHING_HELD.because(f"no {kind.table} of {query[REPO][:200]} is held here")
        following = None
        if more:
            following = addresses.following(rows[-1][name] for name in record_store.sort_columns(kind))
        return answer(rows=await _fill_rows(query, struct, rows), next=following)

    json = Json(
        path=f"/api/records/{kind.table}/{{owner}}/{{repo}}",
        answer=lambda content: content,
        content=answer,
        named=(struct,),
        name=name,
        summary=summary,
        topic=views.TOPIC,
        refusals=(NOTHING_HELD,),
    )
    return View(read=read, parameters=(REPO, LIMIT, BEFORE), json=json)


def _one_view(kind: RecordType[Any], struct: type[Struct], name: str, summary: str) -> View[Any]:
    async def read(query: Query) -> Struct:
        row = await record_store.read_record(
            query.tx, kind, query[REPO], query[IDENTIFIED], hidden=query.hidden
        )
        if row is None:
            raise NOTHING_HELD.because(f"no {kind.table} {query[IDENTIFIED][:100]} is held here")
        (record,) = await _fill_rows(query, struct, [row])
        return record

    json = Json(
        path=f"/api/records/{kind.table}/{{owner}}/{{repo}}/{{id:.+}}",
        answer=lambda content: content,
        content=openapi.Content(struct, "One flat object"),
        name=name,
        summary=summary,
        topic=views.TOPIC,
        refusals=(NOTHING_HELD,),
    )
    return View(read=read, parameters=(REPO, IDENTIFIED), json=json)


def _endpoints(sender: Sender, operation: openapi.Operation) -> tuple[Endpoint, Endpoint]:
    route, with_slash = post_routes(sender.path, make_receiver(sender))
    return Endpoint(route, operation), Endpoint(with_slash)


def _operation(
    sender: Sender, name: str, of: str, caller: openapi.Caller, *, event: Any, example: dict[str, Any]
) -> openapi.Operation:
    return openapi.Operation(
        f"POST {sender.path}",
        name,
        f"Deliver an event of {of}",
        Taken,
        status=202,
        topic=openapi.RECEIVING,
        callers=[caller],
        description=f"For {of}. The event is stored before the answer; what follows from it comes later. Of a project "
        "that the settings map to no repository it is stored, and `ignored` says so.",
        body=openapi.Content(
            event,
            f"as {of} documents it, at most {sender.limit // 2**20} MiB",
            example=example,
        ),
        refusals=[
            (400, "invalid_body", "the body is not a JSON object, or lacks what `detail` names"),
            (401, "invalid_signature", "the signature is missing or wrong"),
            (404, "not_found", f"no {of} is in the settings"),
            (429, "rate_limited", "too many events a minute from which nothing follows"),
            *openapi.SENDING,
        ],
    )


VIEWS = (
    *_endpoints(
        admission.CIRCLECI_SENDER,
        _operation(
            admission.CIRCLECI_SENDER,
            "deliverCircleci",
            "CircleCI",
            OF_CIRCLECI,
            event=CIRCLECI_EVENT,
            example=CIRCLECI_EXAMPLE,
        ),
    ),
    *_endpoints(
        admission.BUILDKITE_SENDER,
        _operation(
            admission.BUILDKITE_SENDER,
            "deliverBuildkite",
            "Buildkite",
            OF_BUILDKITE,
            event=BUILDKITE_EVENT,
            example=BUILDKITE_EXAMPLE,
        ),
    ),
    _list_view(PROVIDER_JOB, JOB_STRUCT, ProviderJobs, "providerJobs", "Jobs of other CIs"),
    _one_view(PROVIDER_JOB, JOB_STRUCT, "providerJob", "One job of another CI"),
    _list_view(PROVIDER_RUN, RUN_STRUCT, ProviderRuns, "providerRuns", "Workflows and builds of other CIs"),
    _one_view(PROVIDER_RUN, RUN_STRUCT, "providerRun", "One workflow or build of another CI"),
)
