"""Whose pull request may be run on a backend that trusts only some authors, and who may write to a repository?"""

from __future__ import annotations

TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"})
WRITERS = frozenset({"admin", "maintain", "write"})


def trusted(author_association: str | None) -> bool:
    """Return whether GitHub's word on the author's relation to the repository is enough by itself."""
    return author_association in TRUSTED


def may_write(role: str | None) -> bool:
    """Return whether a person's role in a repository, in GitHub's word, holds write access: who has it may approve."""
    return role in WRITERS
