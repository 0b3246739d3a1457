"""Fault injection: errors, delays and dropped connections for chosen calls and deliveries."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

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
