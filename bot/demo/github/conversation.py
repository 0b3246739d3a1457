"""What do people say under a pull request? Comments, and the webhooks they cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github import payloads
from bot.demo.github.stage import Stage
from bot.demo.github.state import Comment
from bot.demo.github.world import MAINTAINER

if TYPE_CHECKING:
    from bot.demo.github.state import Pull


class Conversation(Stage):
    """Everybody who has something to say."""

    async def comment(self, pull: Pull, body: str, by: str) -> Comment:
        """Say something under a pull request."""
        now = self.world.now()
        made = Comment(
            id=self.world.new_id(),
            pull=pull,
            body=body,
            user=self.world.user(by),
            author_association=self._association(pull, by),
            created_at=now,
            updated_at=now,
        )
        pull.repo.comments[made.id] = made
        await self.tell(payloads.issue_comment(self.world, made, "created", by))
        return made

    async def edit_comment(self, comment: Comment, body: str, by: str | None = None) -> None:
        """Change what a comment says."""
        changes = {"body": {"from": comment.body}}
        comment.body, comment.updated_at = body, self.world.now()
        by = by or comment.user.login
        event = payloads.issue_comment(self.world, comment, "edited", by, changes=changes)
        await self.tell(event)

    async def delete_comment(self, pull: Pull, comment_id: int, by: str = MAINTAINER) -> None:
        """Remove a comment."""
        gone = pull.repo.comments.pop(comment_id)
        await self.tell(payloads.issue_comment(self.world, gone, "deleted", by))

    def _association(self, pull: Pull, by: str) -> str:
        if self.world.role(pull.repo, by) in {"admin", "write"}:
            return "MEMBER"
        return pull.author_association if by == pull.author else "NONE"
