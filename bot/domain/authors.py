"""Whose pull request may be run on a backend that trusts only some authors?"""

from __future__ import annotations

TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"})


def trusted(author_association: str | None) -> bool:
    """Return whether GitHub's word on the author's relation to the repository is enough by itself."""
    return author_association in TRUSTED
