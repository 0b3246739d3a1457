"""What can go wrong in a way somebody must hear of? Refused callers, GitHub's refusals, and what may be tried again."""

from __future__ import annotations


class OotbotError(Exception):
    """Every error of our own; the message names the thing and the next step."""


class Rejected(OotbotError):
    """A caller is refused: answered as JSON with this status, code and sentence."""

    def __init__(self, status: int, code: str, detail: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}


class RetryLater(OotbotError):
    """The world is not ready: run this task again, after `after` seconds when that is known."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class NotYet(RetryLater):
    """What this task waits for has not happened yet. A new request for it may bring news, so it is not held back."""


class NoRoom(RetryLater):
    """GitHub's limits, or its word, leave no room for a call now: none like it needs trying before `after`."""


AWAY = "GitHub is away"  # what the error of every task says that waits for its return


class GitHubAway(RetryLater):
    """GitHub is broken or out of reach: whatever waits for it may run again as soon as anything gets through."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{AWAY}: {message}")


class GiveUp(OotbotError):
    """This task can never succeed: bury it and show why."""


class Misconfigured(OotbotError):
    """Settings that cannot be used; `problems` holds one sentence each, all of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class GitHubRefused(OotbotError):
    """GitHub said no (4xx other than rate limits); trying again unchanged cannot help."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"GitHub answered {status}: {message}")
        self.status = status
        self.message = message


class NotInstalled(GitHubRefused):
    """The App is not installed on that repository, or is suspended there."""


class StoreUnavailable(OotbotError):
    """The database is gone, locked or full; what was tried has left no trace and may be tried again."""
