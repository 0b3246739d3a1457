"""What people do with pull requests: open, push, label, merge, comment, re-run checks.

Every action changes the state, then sends the webhooks that it causes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github import git, payloads
from bot.demo.github.models import Comment, Pull
from bot.demo.github.serializers import pull as serializers
from bot.demo.github.state import MAINTAINER, GitHubBase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.demo.github.accounts import App
    from bot.demo.github.models import CheckRun, Commit, Event, Repo


class PullRequests(GitHubBase):
    """Actions of people; each returns once its webhooks have been delivered."""

    async def open_pull(
        self,
        repo: Repo | str,
        *,
        title: str = "Add an operator",
        author: str = "octocat",
        labels: Sequence[str] = (),
        body: str = "",
        draft: bool = False,
        author_association: str = "CONTRIBUTOR",
        files: Sequence[str] = ("src/operator.py",),
        from_fork: bool = True,
        head_ref: str | None = None,
    ) -> Pull:
        """Open a pull request of one commit against the default branch."""
        where, now = self.state.repo(repo), self.state.now()
        base = where.branches[where.default_branch]
        number = where.next_number
        head = self._commit(where, base, title, author, files)
        pull = Pull(
            id=self.state.new_id(),
            issue_id=self.state.new_id(),
            repo=where,
            number=number,
            title=title,
            body=body,
            author=author,
            author_association=author_association,
            draft=draft,
            from_fork=from_fork,
            head_ref=head_ref or f"change-{number}",
            head_sha=head.sha,
            base_ref=where.default_branch,
            base_sha=base,
            files=tuple(files),
            created_at=now,
            updated_at=now,
            labels=list(labels),
            commits=[head.sha],
        )
        where.pulls[number] = pull
        pushed = self._head_pushed(pull, before="0" * 40)
        opened = payloads.pull_request(self.state, pull, "opened", author)
        labelled = [self._labelled(pull, "labeled", name, author) for name in labels]
        await self.emit(*pushed, opened, *labelled)
        return pull

    async def push_commit(self, pull: Pull, *, commit: str | None = None) -> str:
        """Push a new or an existing commit to a pull request; return the new head."""
        before = pull.head_sha
        title = f"Change {len(pull.commits) + 1}"
        pull.head_sha = commit or self._commit(pull.repo, before, title, pull.author, pull.files).sha
        pull.commits.append(pull.head_sha)
        moved = {"before": before, "after": pull.head_sha}
        pushed = self._head_pushed(pull, before=before)
        await self.emit(*pushed, self._updated(pull, "synchronize", pull.author, **moved))
        return pull.head_sha

    async def label(self, pull: Pull, name: str, by: str = MAINTAINER) -> None:
        """Add a label."""
        if name not in pull.labels:
            pull.labels.append(name)
            await self.emit(self._labelled(pull, "labeled", name, by))

    async def unlabel(self, pull: Pull, name: str, by: str = MAINTAINER) -> None:
        """Remove a label."""
        if name in pull.labels:
            pull.labels.remove(name)
            await self.emit(self._labelled(pull, "unlabeled", name, by))

    async def close(self, pull: Pull, by: str = MAINTAINER) -> None:
        """Close a pull request without merging it."""
        pull.state, pull.closed_at = "closed", self.state.now()
        await self.emit(self._updated(pull, "closed", by))

    async def reopen(self, pull: Pull, by: str = MAINTAINER) -> None:
        """Reopen a closed pull request."""
        pull.state, pull.closed_at = "open", None
        await self.emit(self._updated(pull, "reopened", by))

    async def ready_for_review(self, pull: Pull) -> None:
        """Mark a draft as ready for review."""
        pull.draft = False
        await self.emit(self._updated(pull, "ready_for_review", pull.author))

    async def merge(self, pull: Pull, by: str = MAINTAINER) -> str:
        """Merge a pull request; return the merge commit, which is pushed to the base branch."""
        repo, before = pull.repo, pull.repo.branches[pull.base_ref]
        commit = git.commit(
            repo,
            at=self.state.now(),
            message=f"Merge pull request #{pull.number}",
            author=by,
            parents=(before, pull.head_sha),
            files=dict(repo.commits[pull.head_sha].tree),
        )
        repo.branches[pull.base_ref] = commit.sha
        pull.state, pull.merge_commit_sha, pull.merged_by = "closed", commit.sha, by
        pull.merged_at = pull.closed_at = self.state.now()
        await self.emit(
            self._updated(pull, "closed", by),
            *self._pushed(repo, f"refs/heads/{pull.base_ref}", before, commit.sha, by),
        )
        return commit.sha

    async def edit_title(self, pull: Pull, title: str, by: str | None = None) -> None:
        """Change the title."""
        changes = {"title": {"from": pull.title}}
        pull.title = title
        await self.emit(self._updated(pull, "edited", by or pull.author, changes=changes))

    async def retarget(self, pull: Pull, base_ref: str, by: str | None = None) -> None:
        """Change the base branch."""
        changes = {"base": {"ref": {"from": pull.base_ref}, "sha": {"from": pull.base_sha}}}
        pull.base_ref, pull.base_sha = base_ref, pull.repo.branches[base_ref]
        await self.emit(self._updated(pull, "edited", by or pull.author, changes=changes))

    async def push(
        self,
        repo: Repo | str,
        ref: str | None = None,
        *,
        by: str = MAINTAINER,
        message: str = "Change something",
        files: Mapping[str, str | bytes] | None = None,
        onto: str | None = None,
    ) -> str:
        """Push a commit with these files to a branch or tag; return its SHA.

        `onto` is its parent: one that is not the head of the branch makes it a forced push.
        """
        where = self.state.repo(repo)
        name = ref or where.default_branch
        full = name if name.startswith("refs/") else f"refs/heads/{name}"
        branch = full.removeprefix("refs/heads/")
        before = where.branches.get(branch, "0" * 40)
        commit = git.commit(
            where,
            at=self.state.now(),
            message=message,
            author=by,
            parents=(onto or where.branches.get(branch, where.branches[where.default_branch]),),
            files={path: as_bytes(text) for path, text in (files or {}).items()},
        )
        where.branches[branch] = commit.sha
        await self.emit(*self._pushed(where, full, before, commit.sha, by))
        return commit.sha

    async def comment(self, pull: Pull, body: str, by: str) -> Comment:
        """Comment on a pull request."""
        now = self.state.now()
        comment = Comment(
            id=self.state.new_id(),
            pull=pull,
            body=body,
            user=self.state.user(by),
            author_association=self._association(pull, by),
            created_at=now,
            updated_at=now,
        )
        pull.repo.comments[comment.id] = comment
        await self.emit(payloads.issue_comment(self.state, comment, "created", by))
        return comment

    async def edit_comment(self, comment: Comment, body: str, by: str | None = None) -> None:
        """Change the text of a comment."""
        changes = {"body": {"from": comment.body}}
        comment.body, comment.updated_at = body, self.state.now()
        by = by or comment.user.login
        await self.emit(payloads.issue_comment(self.state, comment, "edited", by, changes=changes))

    async def delete_comment(self, pull: Pull, comment_id: int, by: str = MAINTAINER) -> None:
        """Delete a comment."""
        deleted = pull.repo.comments.pop(comment_id)
        await self.emit(payloads.issue_comment(self.state, deleted, "deleted", by))

    async def rerequest(self, check_run_id: int, by: str = MAINTAINER) -> None:
        """Press Re-run on a check: its suite is queued again, the run stays, only its App receives the event."""
        run = self._check_run(check_run_id)
        run.suite.reset = True
        await self.emit(payloads.check_run(self.state, run, "rerequested", by, only=run.app))

    async def rerequest_suite(self, repo: Repo | str, sha: str, app: App, by: str = MAINTAINER) -> None:
        """Press Re-run all checks: the suite is queued again, only its App receives the event."""
        suite = self.state.suite(self.state.repo(repo), app, sha)
        suite.reset = True
        await self.emit(payloads.check_suite(self.state, suite, "rerequested", by, only=app))

    async def request_action(self, check_run_id: int, identifier: str, by: str = MAINTAINER) -> None:
        """Press one of a check run's own buttons; ValueError for a button that it does not have."""
        run = self._check_run(check_run_id)
        offered = [each["identifier"] for each in run.actions]
        if identifier not in offered:
            raise ValueError(f"{run.name} has no button {identifier!r}, only {offered}")
        requested = {"identifier": identifier}
        await self.emit(
            payloads.check_run(
                self.state, run, "requested_action", by, only=run.app, requested_action=requested
            )
        )

    def _association(self, pull: Pull, by: str) -> str:
        if self.state.role(pull.repo, by) in {"admin", "write"}:
            return "MEMBER"
        return pull.author_association if by == pull.author else "NONE"

    def _check_run(self, number: int) -> CheckRun:
        for repo in self.state.repos.values():
            if number in repo.check_runs:
                return repo.check_runs[number]
        raise LookupError(f"no check run {number}")

    def _commit(self, repo: Repo, parent: str, message: str, author: str, files: Sequence[str]) -> Commit:
        written = {path: f"{message}\n".encode() for path in files}
        now = self.state.now()
        return git.commit(repo, at=now, message=message, author=author, parents=(parent,), files=written)

    def _updated(self, pull: Pull, action: str, by: str, **extra: Any) -> Event:
        pull.updated_at = self.state.now()
        return payloads.pull_request(self.state, pull, action, by, **extra)

    def _labelled(self, pull: Pull, action: str, name: str, by: str) -> Event:
        return self._updated(pull, action, by, label=serializers.label(self.state, pull.repo, name))

    def _head_pushed(self, pull: Pull, *, before: str) -> list[Event]:
        """Return the events of a push to the head branch: none when it is in a fork."""
        if pull.from_fork:
            return []
        pull.repo.branches[pull.head_ref] = pull.head_sha
        ref = f"refs/heads/{pull.head_ref}"
        return self._pushed(pull.repo, ref, before, pull.head_sha, pull.author)

    def _pushed(self, repo: Repo, ref: str, before: str, after: str, by: str) -> list[Event]:
        """Return the events of a push: the push, and a check suite for each App that may write checks."""
        events = [payloads.push(self.state, repo, ref=ref, before=before, after=after, pusher=by)]
        for each in self.state.installed_on(repo):
            if each.permissions.get("checks") == "write":
                suite = self.state.suite(repo, each.app, after)
                events.append(payloads.check_suite(self.state, suite, "requested", by, only=each.app))
        return events


def as_bytes(text: str | bytes) -> bytes:
    """Return the content of a file as bytes."""
    return text.encode() if isinstance(text, str) else text
