"""What is raised where a search cannot begin or be cancelled."""

from __future__ import annotations


class Refused(Exception):
    """Nothing was done; the message says why, for the person who asked."""


class UnknownCommit(Refused):
    """A commit is not known as one of the branch; GitHub may say more of it."""

    def __init__(self, sha: str, branch: str) -> None:
        super().__init__(f"{sha} is not a commit of {branch} here")
        self.sha = sha
        self.branch = branch
