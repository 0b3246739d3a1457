"""The project's exceptions: refused callers, GitHub's refusals, and failures that may be retried."""

from __future__ import annotations

import errno
import os
import socket
import ssl

BROKEN = "the connection broke off"
_KINDS: dict[type[OSError], str] = {
    ssl.SSLError: "no TLS connection could be made",
    TimeoutError: "no answer in time",
    socket.gaierror: "its name is not known",
}
GITHUB_UNAVAILABLE = "GitHub is away"  # begins the stored error of every task that waits for its return


class OotbotError(Exception):
    """The base of all our errors; the message names the thing and the next step."""


class Rejected(OotbotError):
    """A refused caller: answered as JSON with this status, code and sentence."""

    def __init__(self, status: int, code: str, detail: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}


class RetryLater(OotbotError):
    """The task cannot succeed yet: run it again, after `after` seconds where that is known."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class NotYet(RetryLater):
    """What this task waits for has not happened yet. A new request may change that, so it is not delayed."""


class OverBudget(RetryLater):
    """GitHub's limits, or GitHub itself, rule out a call now: no such call is worth trying before `after`."""


class GiveUp(OotbotError):
    """The task can never succeed: it is kept as dead with the reason."""


class Misconfigured(OotbotError):
    """Settings that cannot be used; `problems` holds one sentence each, all of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class GitHubRefused(OotbotError):
    """GitHub refused a call (4xx other than rate limits); `bot.github.responses` has what each call's refusals mean."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"GitHub answered {status}: {message}")
        self.status = status
        self.message = message
        # it may be given for a new object that GitHub does not know yet; otherwise it is final
        self.not_yet = False
        self.gone = False  # what the call is about was deleted, or never was


class NotInstalled(GitHubRefused):
    """The App is not installed on that repository, or is suspended there."""


class StoreUnavailable(OotbotError):
    """The database is gone, locked or full; the attempt has left no trace and may be repeated."""


class GitHubUnavailable(RetryLater):
    """GitHub is broken or unreachable: whatever waits for it may run again as soon as one call succeeds."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{GITHUB_UNAVAILABLE}: {message}")


def in_words(error: BaseException) -> str:
    """Describe an error of the system or a library in words, without numbers, class names and addresses."""
    cause = getattr(error, "os_error", error)  # what a client's error was made of
    if isinstance(cause, OSError):
        said = _describe_os_error(cause)
        return f"{cause.filename}: {said}" if cause.filename is not None else said
    status = getattr(cause, "status", None)  # a proxy's
    return f"it answered {status}" if status else str(cause) or BROKEN


def _describe_os_error(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    for kind, said in _KINDS.items():
        if isinstance(error, kind):
            return said
    known = error.errno is not None and error.errno in errno.errorcode
    said = os.strerror(error.errno or 0) if known else BROKEN
    return said[:1].lower() + said[1:]
