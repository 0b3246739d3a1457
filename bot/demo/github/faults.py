"""GitHub's refusals and limits, and faults injected into chosen calls and deliveries."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bot.demo.github.accounts import App, Token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

When = Literal["before", "after", "meanwhile"]


@dataclass(kw_only=True, eq=False)
class Fault:
    """A fault for the next `times` matches; see `Faults.add`."""

    method: str
    path: str
    when: When
    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    times: int
    drop: bool
    delay: float

    @property
    def replaces(self) -> bool:
        """Whether the caller gets something other than the regular response."""
        return self.drop or self.status is not None

    def text(self) -> str:
        """Return the body of the response."""
        if self.body is None:
            return json.dumps({"message": "Server Error"})
        return self.body if isinstance(self.body, str) else json.dumps(self.body)


class Faults:
    """The faults that have not been used up."""

    def __init__(self) -> None:
        self.waiting: list[Fault] = []

    def add(
        self,
        *,
        method: str = ".*",
        path: str = "",
        when: When = "before",
        status: int | None = 502,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        times: int = 1,
        drop: bool = False,
        delay: float = 0.0,
    ) -> Fault:
        """Inject a fault into the next `times` calls with a matching method and a path that contains the pattern.

        `before` responds without performing the call; `after` performs it first, so that only the response is lost;
        `meanwhile` closes the connection and performs the call `delay` seconds later. `drop` closes the connection
        instead of responding; `delay` waits that many seconds first; `status` None keeps the regular response and
        only adds `headers`.

        Webhook deliveries match as method `HOOK` with the path `event.action`: `before` is a delivery that never
        arrives, `after` one that arrives but is logged as failed, and `drop` with `before` an event that GitHub
        never generates, so that it is not in the log either.
        """
        fault = Fault(
            method=method,
            path=path,
            when=when,
            status=status,
            headers=dict(headers or {}),
            body=body,
            times=times,
            drop=drop,
            delay=delay,
        )
        self.waiting.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        self.waiting.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """Return the first fault that matches and count one use of it; None when there is none."""
        for fault in self.waiting:
            if re.fullmatch(fault.method, method) and re.search(fault.path, path):
                fault.times -= 1
                if fault.times <= 0:
                    self.waiting.remove(fault)
                return fault
        return None


class ApiError(Exception):
    """An error response with this status and message."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        errors: list[dict[str, Any]] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """Return the error in GitHub's JSON."""
        details = {"errors": self.errors} if self.errors else {}
        return {
            "message": self.message,
            **details,
            "documentation_url": "https://docs.github.com/rest",
            "status": str(self.status),
        }


def not_found(what: str = "Not Found") -> ApiError:
    """Return a 404, which GitHub also gives for resources that the caller may not see."""
    return ApiError(404, what)


def validation_failed(
    message: str, *, resource: str = "", field: str = "", code: str = "invalid"
) -> ApiError:
    """Return a 422 with the details of the problem."""
    error = {"resource": resource, "field": field, "code": code, "message": message}
    return ApiError(422, f"Validation Failed: {message}", errors=[error])


HOUR = 3_600_000  # milliseconds


@dataclass(frozen=True)
class Window:
    """The current hour of one caller."""

    ends: int  # epoch milliseconds
    used: int  # calls


class RateLimit:
    """The limit of calls per hour for each App and each installation."""

    def __init__(self, now: Callable[[], int], per_hour: int = 5_000) -> None:
        self.per_hour = per_hour
        self._now = now
        self._windows: dict[int, Window] = {}  # by the id of the App or installation

    def check(self, caller: App | Token) -> None:
        """Refuse a caller that has reached its limit."""
        window = self._window(caller)
        if window.used >= self.per_hour:
            reset = window.ends // 1000
            raise ApiError(403, f"API rate limit exceeded for installation; try again at {reset}")

    def count(self, caller: App | Token | None, *, free: bool) -> dict[str, str]:
        """Count a call, unless it was free, and return the headers that report the limit."""
        window = self._window(caller)
        if not free:
            window = Window(window.ends, min(window.used + 1, self.per_hour))
            self._windows[_owner(caller)] = window
        return {
            "X-RateLimit-Limit": str(self.per_hour),
            "X-RateLimit-Remaining": str(self.per_hour - window.used),
            "X-RateLimit-Used": str(window.used),
            "X-RateLimit-Reset": str(window.ends // 1000),
            "X-RateLimit-Resource": "core",
        }

    def _window(self, caller: App | Token | None) -> Window:
        now = self._now()
        window = self._windows.get(_owner(caller))
        return window if window and window.ends > now else Window(now + HOUR, 0)


def _owner(caller: App | Token | None) -> int:
    if caller is None:
        return 0
    return caller.installation.id if isinstance(caller, Token) else caller.app_id
