"""Histories of single objects: deliveries as (event, body), in the order in which things happened."""

REPOSITORY = {"id": 5, "full_name": "org/project", "private": False}


def at(minute: int) -> str:
    return f"2026-03-01T10:{minute:02}:00Z"


def _delivery(event, member, action, thing, **more):
    return event, {"action": action, member: thing, "repository": REPOSITORY} | more


def _job(action, **more):
    steps = more.pop("steps", [])
    known = {"id": 70, "run_id": 60, "run_attempt": 1, "name": "build", "created_at": at(1), "steps": steps}
    return _delivery("workflow_job", "workflow_job", action, known | {"status": action} | more)


def _run(action, minute, attempt=1, **more):
    known = {"id": 60, "run_attempt": attempt, "name": "CI", "created_at": at(0), "updated_at": at(minute)}
    return _delivery("workflow_run", "workflow_run", action, known | {"status": action} | more)


def _check(action, status, **more):
    known = {"id": 80, "name": "build", "head_sha": "a" * 40, "status": status, "started_at": at(1)}
    return _delivery("check_run", "check_run", action, known | more)


def _pull(action, minute, more=(), **fields):
    known = {"id": 90, "number": 3, "state": "open", "title": "Faster", "labels": [], "updated_at": at(minute),
             "created_at": at(0), "head": {"sha": "a" * 40}}  # fmt: skip
    return _delivery("pull_request", "pull_request", action, known | fields, **dict(more))


def _issue(action, minute, more=(), **fields):
    known = {"id": 95, "number": 4, "state": "open", "title": "Slow", "labels": [], "updated_at": at(minute)}
    return _delivery("issues", "issue", action, known | fields, **dict(more))


LABEL = {"id": 1, "name": "bug"}
HISTORIES = {
    "workflow_job": [
        _job("queued", labels=["gpu"]),
        _job("waiting"),
        _job("in_progress", started_at=at(3), runner_name="runner 1", steps=[{"name": "set up"}]),
        _job("in_progress", started_at=at(3), runner_name="runner 1", steps=[{"name": "make"}]),
        _job("completed", conclusion="success", completed_at=at(9), started_at=None),
        _job("completed", conclusion="cancelled", completed_at=at(9), runner_name=None),
    ],
    "workflow_run": [
        _run("requested", 0),
        _run("in_progress", 1),
        _run("completed", 5, conclusion="failure"),
        _run("completed", 5, conclusion="failure", display_title="the same second"),
        _run("in_progress", 6, attempt=2),
        _run("completed", 8, attempt=2, conclusion="success", name=None),
    ],
    "check_run": [
        _check("created", "queued", output={"title": None}),
        _check("created", "in_progress", output={"title": "half"}),
        _check("completed", "completed", conclusion="failure", completed_at=at(5), output={"title": None}),
        _check("rerequested", "completed", conclusion="failure", completed_at=at(5), details_url="https://a.example"),
        _check("created", "in_progress", conclusion=None, completed_at=None),
        _check("completed", "completed", conclusion="success", completed_at=at(7)),
    ],
    "pull_request": [
        _pull("opened", 1),
        _pull("edited", 1, title="Much faster"),
        _pull("labeled", 2, {"label": LABEL}, labels=[LABEL]),
        _pull("synchronize", 3, head={"sha": "b" * 40}),
        _pull("unlabeled", 3, {"label": LABEL}, head={"sha": "b" * 40}),
        _pull("closed", 4, head={"sha": "b" * 40}, state="closed", closed_at=at(4)),
    ],
    "issues": [
        _issue("opened", 1),
        _issue("labeled", 1, {"label": LABEL}, labels=[LABEL]),
        _issue("closed", 2, state="closed", closed_at=at(2)),
        _issue("reopened", 3, closed_at=None),
        _issue("unlabeled", 3, {"label": LABEL}),
        _issue("deleted", 3, title=None),
    ],
}  # fmt: skip
