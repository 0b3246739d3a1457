"""Keys of the tasks that collect: a log or artifact, `owner/repo#id`; an attempt of a run, `owner/repo/run/attempt`."""

from __future__ import annotations

from bot.core.errors import GiveUp


def object_key(repo: str, identifier: int) -> str:
    """Return the key of a job's log or of an artifact."""
    return f"{repo}#{identifier}"


def parse_object_key(key: str) -> tuple[str, int]:
    """Return repository and id; raises GiveUp when the key names none."""
    repo, _, identifier = key.rpartition("#")
    if not repo or not identifier.isdigit():
        raise GiveUp(f"{key!r} names no log or artifact")
    return repo, int(identifier)


def run_key(repo: str, run_id: int, attempt: int) -> str:
    """Return the key of an attempt of a run."""
    return f"{repo}/{run_id}/{attempt}"


def parse_run_key(key: str) -> tuple[str, int, int]:
    """Return repository, run and attempt; raises GiveUp when the key names none."""
    repo, _, rest = key.rpartition("/")
    repo, _, run_id = repo.rpartition("/")
    if repo.count("/") != 1 or not run_id.isdigit() or not rest.isdigit():
        raise GiveUp(f"{key!r} names no attempt of a run")
    return repo, int(run_id), int(rest)
