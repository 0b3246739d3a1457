"""Builders of pull request heads for tests: a job is a name, a sign and numbers."""

from typing import Any

from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Backend, BaseCommit, CommandAnswer, FailedTest, History, Job, Pull

HUD = "https://hud.example"
CI = "https://ci.example"
BASE = "ba5eba5e" + "0" * 32
HEAD = "0123abcd4567ef890123abcd4567ef890123abcd"
START = 1_790_000_000_000  # epoch milliseconds of every first job


def job(name: str, conclusion: str | None = "success", *, minutes: int = 12, **fields: Any) -> Job:
    """A job of the workflow `ci` that began with its run; no conclusion means it runs."""
    ended = {"completed_at": START + minutes * 60_000, "execution_time": minutes * 60.0}
    given = {
        "workflow": "ci",
        "run_id": "77",
        "run_attempt": 1,
        "url": f"{CI}/77/{name}".replace(" ", "-"),
        "queue_time": 30.0,
        "started_at": START,
    }
    given |= ended if conclusion else {}
    status = "completed" if conclusion else "in_progress"
    return Job(name=name, status=status, conclusion=conclusion, **{**given, **fields})


def backend(device: str, /, *jobs: Job, state: State = State.SUCCESS, level: int = 4, **fields: Any):
    """A backend `org/<device>` with a page on the HUD."""
    given = {
        "repo": f"org/{device}",
        "device": device,
        "page_url": f"{HUD}/octo/core/pull/7#{device}",
        "run_url": f"{CI}/77" if jobs else None,
        "dispatched_at": START - 30_000,
        "finished_at": START + 31 * 60_000 if state.finished else None,
    }
    return Backend(level=level, state=state, jobs=jobs, **{**given, **fields})


def pull(*backends: Backend, **fields: Any) -> Pull:
    """Pull request 7 of octo/core."""
    given = {
        "repo": "octo/core",
        "number": 7,
        "head_sha": HEAD,
        "page_url": f"{HUD}/octo/core/pull/7",
        "help_url": f"{HUD}/oot/levels",
        "base": BaseCommit(ref="main", sha=BASE, is_merge_base=True, committed_at=START - 7_200_000),
    }
    return Pull(backends=backends, **{**given, **fields})


def failed_test(name: str = "test_add", **fields: Any) -> FailedTest:
    """A failed assertion with its place and trace."""
    given = {
        "classname": "tests.ops.TestAdd",
        "file": "tests/ops.py",
        "line": 12,
        "message": "AssertionError: 3 != 4",
        "stacktrace": 'File "tests/ops.py", line 12, in test_add\n    assert add(1, 2) == 4',
    }
    return FailedTest(name=name, **{**given, **fields})


def failing_job(name: str = "unit", history: History | None = History.NEW, **fields: Any) -> Job:
    """A failed job with test counts, one reported failure and a run to compare with."""
    given = {
        "passed": 8430,
        "failed": 1,
        "skipped": 20,
        "failed_tests": (failed_test(),),
        "history": history,
        "evidence_url": f"{CI}/70",
    }
    return job(name, "failure", minutes=31, **{**given, **fields})


def hostile(word: str) -> Pull:
    """A head where every word that comes from outside is `word`."""
    test = FailedTest(name=word, classname=word, file=word, line=3, message=word, stacktrace=word)
    fields = {
        "workflow": word,
        "run_id": word,
        "url": word,
        "artifact_url": word,
        "evidence_url": word,
        "environment": {word: word},
        "failed_tests": (test, test),
        "failed": 2,
        "passed": 5,
        "history": History.KNOWN,
    }
    jobs = (job(word, "failure", **fields), job(word, **fields), job(word, None, **fields))
    states = [(state, 3 + number % 2) for number, state in enumerate(State)]
    states += [(State.FAILURE, 2), (State.FAILURE, 3), (State.FAILURE, 4)]
    backends = [
        Backend(
            repo=word,
            device=word if level > 2 else None,
            level=level,
            state=state,
            reason=word,
            oncalls=(word, "alice"),
            jobs=jobs if number % 2 else (),
            run_url=word,
            page_url=word if number % 3 else HUD,
            ignored_by=word if number % 5 == 0 else None,
            ignored_reason=word,
        )
        for number, (state, level) in enumerate(states)
    ]
    given = [CommandAnswer(login=word, command=word, text=word, refused=refused) for refused in (False, True)]
    base = BaseCommit(ref=word, sha=word, is_merge_base=False)
    return pull(*backends, repo=word, answers=tuple(given), gate_unknown=word, base=base)
