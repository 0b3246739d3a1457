"""What people do with issues: open, edit, close, reopen. Every action changes the state, then sends the webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github import payloads
from bot.demo.github.models import Issue
from bot.demo.github.state import MAINTAINER, GitHubBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.demo.github.models import Repo


class Issues(GitHubBase):
    """Actions of people; each returns once its webhooks have been delivered."""

    async def open_issue(
        self,
        repo: Repo | str,
        title: str,
        body: str = "",
        *,
        by: str = MAINTAINER,
        labels: Sequence[str] = (),
    ) -> Issue:
        """Open an issue."""
        where, now = self.state.repo(repo), self.state.now()
        issue = Issue(
            id=self.state.new_id(),
            repo=where,
            number=where.next_number,
            title=title,
            body=body,
            author=by,
            author_association="MEMBER" if self.state.role(where, by) in {"admin", "write"} else "NONE",
            created_at=now,
            updated_at=now,
            labels=list(labels),
        )
        where.issues[issue.number] = issue
        await self.emit(payloads.issues(self.state, issue, "opened", by))
        return issue

    async def edit_issue(
        self, issue: Issue, *, title: str | None = None, body: str | None = None, by: str | None = None
    ) -> None:
        """Change an issue's title or body."""
        changes = {}
        for name, text in (("title", title), ("body", body)):
            if text is not None:
                changes[name] = {"from": getattr(issue, name)}
                setattr(issue, name, text)
        await self._issue_changed(issue, "edited", by or issue.author, changes=changes)

    async def close_issue(self, issue: Issue, by: str = MAINTAINER) -> None:
        """Close an issue."""
        issue.state, issue.closed_at = "closed", self.state.now()
        await self._issue_changed(issue, "closed", by)

    async def reopen_issue(self, issue: Issue, by: str = MAINTAINER) -> None:
        """Open a closed issue again."""
        issue.state, issue.closed_at = "open", None
        await self._issue_changed(issue, "reopened", by)

    async def _issue_changed(self, issue: Issue, action: str, by: str, **extra: object) -> None:
        issue.updated_at = self.state.now()
        await self.emit(payloads.issues(self.state, issue, action, by, **extra))
