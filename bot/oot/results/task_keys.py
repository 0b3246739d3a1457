"""Keys of tasks: the pull request, run, re-run or delivery that a task is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.errors import GiveUp
from bot.ingest import inbox
from bot.ingest.repositories import read_payload

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task


def pull_key(repo: str, number: int) -> str:
    """Return the key of a pull request, `owner/repo#number`."""
    return f"{repo}#{number}"


def parse_pull(task: Task) -> tuple[str, int]:
    """Return repository and number of a task's pull request; raises GiveUp when its key names none."""
    repo, _, number = task.key.rpartition("#")
    if not repo or not number.isdigit():
        raise GiveUp(f"{task.key!r} names no pull request")
    return repo, int(number)


async def read_delivery(context: Context, tx: Transaction, task: Task) -> tuple[str, dict[str, Any]]:
    """Return event and body of the delivery a task is about; raises GiveUp when it is no longer stored."""
    stored = await inbox.find_delivery(tx, task.key)
    if stored is None:
        raise GiveUp(f"delivery {task.key} is not stored any more")
    return stored["event"], read_payload(context.settings, stored["body"])


def request_publish(tx: Transaction, repo: str, number: int | None, *, delay: float = 0) -> None:
    """Bring what is shown on a pull request up to date; a push has no number and shows nothing."""
    if number is not None:
        tx.enqueue("publish", pull_key(repo, number), delay=delay)


def run_key(backend: str, run_id: str | int, attempt: int) -> str:
    """Return the key of an attempt of a backend's run, `owner/repo/run_id/attempt`, case folded."""
    return f"{backend.casefold()}/{run_id}/{attempt}"


def parse_run(key: str) -> tuple[str, str, int]:
    """Return backend, run id and attempt; raises ValueError. Another CI's run id may hold a slash."""
    owner, name, run = key.split("/", 2)
    run_id, _, attempt = run.rpartition("/")
    return f"{owner}/{name}", run_id, int(attempt)


def rerun_key(dispatch_id: str, attempt: int, run_id: str) -> str:
    """Return the key of a re-run, `dispatch/attempt/run_id`: the attempt the run is at now."""
    return f"{dispatch_id}/{attempt}/{run_id}"


def parse_rerun(key: str) -> tuple[str, int, str]:
    """Return dispatch, attempt and run id; raises ValueError."""
    dispatch_id, attempt, run_id = key.split("/", 2)
    return dispatch_id, int(attempt), run_id
