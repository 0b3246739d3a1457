"""Operations of what was collected: jobs, artifacts, storage."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.ci.collect import api, artifact_kinds, uploads
from bot.oot.reports.views import BACKEND, UNKNOWN_CALLER
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of

NOTHING: op.Refusal = (404, "not_found", "nothing of that name or id may be shown")

_read = partial(
    op.Operation,
    topic=op.Topic("CI", "The repositories' own CI, as the App collects it."),
    callers=op.READER,
    refusals=[op.WRONG_PARAMETER, NOTHING, *op.READING],
)
OPERATIONS = (
    op.Operation(
        "POST /api/oot/uploads",
        "upload",
        "Upload a job's log, test reports or usage log",
        uploads.Uploaded,
        status=202,
        topic=op.DOORS,
        callers=[BACKEND],
        description="For backends on a CI other than GitHub Actions, whose logs the App cannot fetch. The same token "
        "as for reports. The file is stored before the answer and read later.",
        parameters=[
            op.needed("kind", Annotated[str, one_of(uploads.KINDS)], "what the file is"),
            op.needed(
                "delivery_id",
                op.Text,
                "of the dispatch; of a run that nobody dispatched, the commit it tested",
            ),
            op.needed("run_id", op.Text, "the CI's own; the token's where it has one"),
            op.whole("run_attempt", 999_999, "of the run", default=1),
            op.needed("workflow", op.Text, "as in the report on the job"),
            op.needed("job", op.Text, "as in the report on the job"),
            op.in_query(
                "event_type",
                Annotated[str, one_of(uploads.EVENTS)],
                "of a run that nobody dispatched: delivery_id is upstream's commit, and the backend's own of a push",
            ),
            op.in_query("name", op.Text, "of the file"),
            op.in_header(uploads.TOKEN_HEADER, op.Text, "client_payload.callback_token", required=False),
        ],
        body=op.Content(
            bytes,
            f"the file itself, at most {uploads.LIMIT // uploads.MIB} MiB",
            media_type="application/octet-stream",
        ),
        refusals=[
            op.WRONG_PARAMETER,
            *UNKNOWN_CALLER,
            (404, "unknown_dispatch", "that delivery was never dispatched to this backend"),
            *op.SENDING,
        ],
    ),
    _read(
        "GET /api/ci/jobs/{owner}/{repo}/{id}",
        "ciJob",
        "A job of a repository's own CI",
        api.CiJobAnswer,
        parameters=[*op.repository(), op.in_path("id", op.Number, "GitHub's id of the job")],
        refusals=[NOTHING, *op.READING],
    ),
    _read(
        "GET /api/ci/artifacts/{owner}/{repo}",
        "ciArtifacts",
        "Artifacts of a repository",
        api.Artifacts,
        parameters=[
            *op.repository(),
            op.in_query("run_id", op.Number, "only of this run"),
            op.in_query(
                "sha", Annotated[str, matching(parameters.SHA)], "only of this commit, or its beginning"
            ),
            op.in_query("name", op.Text, "only of this name"),
            op.in_query("kind", Annotated[str, one_of(sorted(artifact_kinds.KNOWN))], "only of this kind"),
            op.limit(api.ROWS),
            op.before(),
        ],
    ),
    _read(
        "GET /api/ci/storage/{owner}/{repo}",
        "ciStorage",
        "What fills a repository's artifact storage",
        api.Storage,
        parameters=[
            *op.repository(),
            op.whole(
                "days", parameters.MOST_DAYS, "the window, counted back from now", default=parameters.DAYS
            ),
        ],
    ),
)
