"""Whose pull request may be run on a backend that trusts only some authors, and who may say so?"""

from __future__ import annotations

TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"})
WRITERS = frozenset({"admin", "maintain", "write"})


def trusted(author_association: str | None) -> bool:
    """Return whether GitHub's word on the author's relation to the repository is enough by itself."""
    return author_association in TRUSTED


def may_approve(permission: str | None) -> bool:
    """Return whether GitHub's word on a person's permission is enough to let a held pull request go."""
    return permission in WRITERS
