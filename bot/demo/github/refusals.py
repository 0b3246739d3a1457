"""How does GitHub say no? One exception that becomes its JSON error."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A call is refused with this status and message."""

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
        """Return the error as GitHub writes it."""
        found = {"errors": self.errors} if self.errors else {}
        return {
            "message": self.message,
            **found,
            "documentation_url": "https://docs.github.com/rest",
            "status": str(self.status),
        }


def missing(what: str = "Not Found") -> Refused:
    """Return the 404 that GitHub also gives for what the caller may not see."""
    return Refused(404, what)


def invalid(message: str, *, resource: str = "", field: str = "", code: str = "invalid") -> Refused:
    """Return a 422 that names what is wrong."""
    error = {"resource": resource, "field": field, "code": code, "message": message}
    return Refused(422, f"Validation Failed: {message}", errors=[error])
