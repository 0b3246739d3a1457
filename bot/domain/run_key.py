"""What names an attempt of a backend's run in one text? The keys of `confirm` and `run_again`."""

from __future__ import annotations


def of(backend: str, run_id: str | int, attempt: int) -> str:
    """Return the key under which GitHub is asked about an attempt: `owner/repo/run_id/attempt`, case folded."""
    return f"{backend.casefold()}/{run_id}/{attempt}"


def parse(key: str) -> tuple[str, str, int]:
    """Return backend, run id and attempt; raises ValueError. Another CI's run id may hold a slash."""
    owner, name, run = key.split("/", 2)
    run_id, _, attempt = run.rpartition("/")
    return f"{owner}/{name}", run_id, int(attempt)


def of_rerun(dispatch_id: str, attempt: int, run_id: str) -> str:
    """Return the key under which a run is run again: `dispatch/attempt/run_id`, the attempt it is at now."""
    return f"{dispatch_id}/{attempt}/{run_id}"


def parse_rerun(key: str) -> tuple[str, int, str]:
    """Return dispatch, attempt and run id; raises ValueError."""
    dispatch_id, attempt, run_id = key.split("/", 2)
    return dispatch_id, int(attempt), run_id
