"""What can be read of results? Described."""

from __future__ import annotations

from bot.domain.readiness import Word
from bot.domain.view import State
from bot.web import api, backend_api, metrics_page, parameters
from bot.web.openapi_parts import (
    FLAG,
    NUMBER,
    OK,
    READER,
    READING,
    TEXT,
    TIME,
    WHOLE,
    WRONG_PARAMETER,
    Refusal,
    Schema,
    answer,
    before,
    in_path,
    in_query,
    limit,
    listed,
    matching,
    maybe,
    members,
    one_of,
    operation,
    ref,
    repository,
    whole,
)

REPORTED = "|".join(parameters.REPORTED)
NOTHING: Refusal = (404, "not_found", "there is nothing of that name that may be shown")
EVENT = in_query("event", matching(f"({REPORTED})(,({REPORTED}))*"), "only jobs of this event, or of several")
MATCHING = in_query("q", TEXT, "only backends whose name or device holds these words")
WORD: Schema = one_of(map(str, Word))
UNKNOWN_BACKEND: Refusal = (404, "unknown_backend", "neither on the allowlist nor ever heard of")
DAYS = whole("days", parameters.MOST_DAYS, "the window, counted back from now", default=parameters.DAYS)


def paths() -> Schema:
    """Return the reads by address and method."""
    return {
        "/api/oot/summary": {"get": _summary()},
        "/api/oot/backends/{org}/{repo}": {"get": _backend()},
        "/api/oot/backends/{org}/{repo}/jobs.csv": {"get": _jobs_csv()},
        "/api/oot/pulls/{owner}/{repo}/{number}": {"get": _pull()},
        "/api/oot/commits/{owner}/{repo}/{sha}": {"get": _commit()},
        "/api/oot/allowlist": {"get": _allowlist()},
        "/api/oot/levels": {"get": _levels()},
        "/api/oot/metrics": {"get": _metrics()},
    }


def _summary() -> Schema:
    shown = members({"ok": OK, "days": WHOLE, "backends": listed(ref("Backend"))})
    return operation(
        "summary",
        "How does every backend do?",
        tag="Results",
        who=READER,
        parameters=[
            DAYS,
            whole("level", 4, "only backends of this level"),
            MATCHING,
            EVENT,
        ],
        answers={200: answer("From L4 down, the worst first", shown)},
        refusals=[WRONG_PARAMETER, NOTHING, *READING],
    )


def _backend() -> Schema:
    shown = {
        "ok": OK,
        "days": WHOLE,
        "backend": ref("Backend"),
        "jobs": listed(ref("Job")),
        "next": maybe(TEXT),
        "unanswered": listed(ref("Unanswered")),
    }
    return operation(
        "backend",
        "How does one backend do?",
        tag="Results",
        who=READER,
        parameters=[*repository("org"), DAYS, EVENT, limit(backend_api.JOBS), before()],
        answers={
            200: answer(
                "Its numbers, its newest jobs and dispatches nobody answered; `next` as with records",
                members(shown),
            )
        },
        refusals=[WRONG_PARAMETER, NOTHING, UNKNOWN_BACKEND, *READING],
    )


def _jobs_csv() -> Schema:
    most = backend_api.MOST_SHEET
    said = {
        "description": "The newest jobs, a line of names first; no cell is a formula. The Link header's `next` has more"
    }
    return operation(
        "backendJobs",
        "The jobs of one backend as a sheet",
        tag="Results",
        who=READER,
        parameters=[
            *repository("org"),
            DAYS,
            EVENT,
            whole("limit", most, "how many rows at most", default=backend_api.SHEET),
            before(),
        ],
        answers={200: said | {"content": {"text/csv": {"schema": TEXT}}}},
        refusals=[WRONG_PARAMETER, NOTHING, UNKNOWN_BACKEND, *READING],
    )


def _pull() -> Schema:
    counts = {
        "type": "object",
        "properties": {str(state): WHOLE for state in State},
        "additionalProperties": False,
    }
    head = members({"sha": TEXT, "current": FLAG, "backends": maybe(counts)})
    shown = {
        "ok": OK,
        "pull": ref("PullRequest"),
        "heads": listed(head),
        "backends": listed(ref("OnHead")),
        "jobs": listed(ref("Job")),
        "more": FLAG,
    }
    return operation(
        "pullRequest",
        "What do the backends say of a pull request?",
        tag="Results",
        who=READER,
        parameters=[
            *repository(),
            in_path("number", {"type": "integer", "minimum": 1}, "number of the pull request"),
            in_query("sha", matching(parameters.SHA.pattern), "one of its heads, or how it begins"),
            limit(api.JOBS_OF_PULL, most=api.MOST_JOBS_OF_PULL),
        ],
        answers={
            200: answer(
                "The backends on its newest head, or on `sha`; the newest jobs of all heads, or of it, and whether "
                "there are `more`. Where very much was dispatched, other heads have null for their `backends`.",
                members(shown),
            )
        },
        refusals=[
            WRONG_PARAMETER,
            NOTHING,
            (404, "unknown_pull_request", "nobody told us about it, or it is private"),
            (404, "unknown_commit", "`sha` is no head of it"),
            *READING,
        ],
    )


def _commit() -> Schema:
    return operation(
        "commit",
        "What do the backends say of a commit?",
        tag="Results",
        who=READER,
        more="Pull requests, pushes, nightly and periodic runs alike.",
        parameters=[
            *repository(),
            in_path("sha", matching(parameters.SHA.pattern), "the upstream commit, or how it begins"),
            EVENT,
            limit(backend_api.JOBS),
        ],
        answers={
            200: answer(
                "Its jobs, the newest first", members({"ok": OK, "repo": TEXT, "jobs": listed(ref("Job"))})
            )
        },
        refusals=[
            WRONG_PARAMETER,
            NOTHING,
            (404, "unknown_commit", "nobody has reported on it, or its repository is private"),
            *READING,
        ],
    )


def _allowlist() -> Schema:
    newest = members({"source": TEXT, "valid": FLAG, "errors": listed(TEXT), "loaded_at": TIME})
    shown = {"ok": OK, "in_force": FLAG, "entries": listed(ref("Entry")), "newest": maybe(newest)}
    return operation(
        "allowlist",
        "Which backends take part, on which terms?",
        tag="Results",
        who=READER,
        answers={
            200: answer("The entries in force, and whether the newest version is valid", members(shown))
        },
        refusals=[NOTHING, *READING],
    )


def _levels() -> Schema:
    measure = members({"name": TEXT, "value": maybe(NUMBER), "shown": TEXT, "threshold": TEXT, "word": WORD})
    judged = {"repo": TEXT, "level": WHOLE, "device": maybe(TEXT), "since": maybe(TIME), "advice": TEXT}
    judged |= {"promotion": WORD, "demotion": WORD}
    judged |= {"measures": listed(measure), "demotion_measures": listed(measure)}
    return operation(
        "levels",
        "Which backends are ready for more, which for less?",
        tag="Results",
        who=READER,
        parameters=[MATCHING],
        answers={
            200: answer(
                "Listed backends that report, with their measures and thresholds",
                members({"ok": OK, "backends": listed(members(judged))}),
            )
        },
        refusals=[NOTHING, *READING],
    )


def _metrics() -> Schema:
    timed = (
        "pass_rate",
        "median_execution_time",
        "p90_execution_time",
        "median_queue_time",
        "p90_queue_time",
    )
    row = {"repo": TEXT, "day": TEXT, "runs": WHOLE, "failed": WHOLE} | {
        name: maybe(NUMBER) for name in timed
    }
    shown = {"ok": OK, "days": WHOLE, "backends": WHOLE, "rows": listed(members(row))}
    some = f"{metrics_page.FEWEST} to {metrics_page.MOST} backends"
    return operation(
        "backendMetrics",
        "How did backends do day by day?",
        tag="Results",
        who=READER,
        parameters=[
            DAYS,
            whole("level", 4, "only backends of this level"),
            MATCHING,
            whole("from", 100_000, "which backend to begin with, the busiest is 1", default=1),
        ],
        answers={200: answer(f"{some}, a row for each day", members(shown))},
        refusals=[WRONG_PARAMETER, NOTHING, *READING],
    )
