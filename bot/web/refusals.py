"""Refusals that several capabilities have: what the OpenAPI document says of them, and what is raised."""

from __future__ import annotations

from typing import NamedTuple

from bot.core.errors import Rejected


class Refused(NamedTuple):
    """A refusal as an operation declares it."""

    status: int
    code: str
    when: str

    def because(self, detail: str) -> Rejected:
        """Return the error to raise; `detail` says what is wrong with this request."""
        return Rejected(self.status, self.code, detail)


NOT_FOUND = Refused(404, "not_found", "not the name of a repository, or of nothing here")
UNKNOWN_REPOSITORY = Refused(404, "unknown_repository", "nothing of that name may be shown")
UNKNOWN_BRANCH = Refused(404, "unknown_branch", "the repository has no branch of that name here")
UNKNOWN_COMMIT = Refused(404, "unknown_commit", "`before` is not on the branch")
UNKNOWN_BACKEND = Refused(404, "unknown_backend", "`backend` is not listed")
INVALID_PARAMETER = Refused(400, "invalid_parameter", "a parameter is wrong; `detail` says what it may be")


def unknown_backend(name: str) -> Rejected:
    """Return the refusal of a backend that is not listed, or hidden."""
    return UNKNOWN_BACKEND.because(f"no backend {name[:200]} is listed here")
