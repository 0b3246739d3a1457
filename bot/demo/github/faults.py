"""What goes wrong on purpose? Faults that tests order, matched to calls and deliveries."""

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
    """One disturbance, for the next `times` matches. See `Faults.add`."""

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
        """Whether the caller gets something else than the honest answer."""
        return self.drop or self.status is not None

    def text(self) -> str:
        """Return the body that goes over the wire."""
        if self.body is None:
            return json.dumps({"message": "Server Error"})
        return self.body if isinstance(self.body, str) else json.dumps(self.body)


class Faults:
    """The faults still waiting for their call."""

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
        """Disturb the next `times` calls whose method matches and whose path holds the pattern.

        `before` answers instead of acting, `after` acts and then answers so: the lost answer.
        `meanwhile` closes the connection and acts all the same, `delay` seconds later.
        `drop` closes the connection without one; `delay` waits that many seconds first;
        `status` None leaves the honest answer and only adds `headers`.

        Webhook deliveries are matched as method `HOOK` with path `event.action`: `before` is a
        delivery that fails on its way, `after` one that arrives but is logged as failed, and
        `drop` with `before` an event that GitHub never generates, not even in the log.
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
        """Let everything work again."""
        self.waiting.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """Return the first fault that matches, used up by one; None when all goes well."""
        for fault in self.waiting:
            if re.fullmatch(fault.method, method) and re.search(fault.path, path):
                fault.times -= 1
                if fault.times <= 0:
                    self.waiting.remove(fault)
                return fault
        return None
