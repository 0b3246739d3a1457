"""What do people do on GitHub? Each act changes state, then sends the webhooks it causes."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from bot.demo.github import git, payloads
from bot.demo.github.shapes import pull as shapes
from bot.demo.github.stage import Stage
from bot.demo.github.state import Pull
from bot.demo.github.world import MAINTAINER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.demo.github.accounts import App
    from bot.demo.github.records import Delivery, Event
    from bot.demo.github.state import Commit, Repo


class People(Stage):
    """Everybody with an account. Every act returns when its webhooks were delivered."""

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
    ) -> Pull:
        """Open a pull request of one commit against the default branch."""
        where, now = self.world.repo(repo), self.world.now()
        base = where.branches[where.default_branch]
        number = 1 + max(where.pulls, default=0)
        head = self._commit(where, base, title, author, files)
        pull = Pull(
            id=self.world.new_id(),
            issue_id=self.world.new_id(),
            repo=where,
            number=number,
            title=title,
            body=body,
            author=author,
            author_association=author_association,
            draft=draft,
            from_fork=from_fork,
            head_ref=f"change-{number}",
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
        opened = payloads.pull_request(self.world, pull, "opened", author)
        labelled = [self._labelled(pull, "labeled", name, author) for name in labels]
        await self.tell(*pushed, opened, *labelled)
        return pull

    async def push_commit(self, pull: Pull, *, commit: str | None = None) -> str:
        """Push one more commit to a pull request, or one that is there already; returns the new head."""
        before = pull.head_sha
        title = f"Change {len(pull.commits) + 1}"
        pull.head_sha = commit or self._commit(pull.repo, before, title, pull.author, pull.files).sha
        pull.commits.append(pull.head_sha)
        moved = {"before": before, "after": pull.head_sha}
        pushed = self._head_pushed(pull, before=before)
        await self.tell(*pushed, self._touch(pull, "synchronize", pull.author, **moved))
        return pull.head_sha

    async def label(self, pull: Pull, name: str, by: str = MAINTAINER) -> None:
        """Put a label on."""
        if name not in pull.labels:
            pull.labels.append(name)
            await self.tell(self._labelled(pull, "labeled", name, by))

    async def unlabel(self, pull: Pull, name: str, by: str = MAINTAINER) -> None:
        """Take a label off."""
        if name in pull.labels:
            pull.labels.remove(name)
            await self.tell(self._labelled(pull, "unlabeled", name, by))

    async def close(self, pull: Pull, by: str = MAINTAINER) -> None:
        """Close a pull request without merging it."""
        pull.state, pull.closed_at = "closed", self.world.now()
        await self.tell(self._touch(pull, "closed", by))

    async def reopen(self, pull: Pull, by: str = MAINTAINER) -> None:
        """Open a closed pull request again."""
        pull.state, pull.closed_at = "open", None
        await self.tell(self._touch(pull, "reopened", by))

    async def ready_for_review(self, pull: Pull) -> None:
        """End the draft."""
        pull.draft = False
        await self.tell(self._touch(pull, "ready_for_review", pull.author))

    async def merge(self, pull: Pull, by: str = MAINTAINER) -> str:
        """Merge a pull request; returns the merge commit, pushed to the base branch."""
        repo, before = pull.repo, pull.repo.branches[pull.base_ref]
        made = git.commit(
            repo,
            at=self.world.now(),
            message=f"Merge pull request #{pull.number}",
            author=by,
            parents=(before, pull.head_sha),
            files=dict(repo.commits[pull.head_sha].tree),
        )
        repo.branches[pull.base_ref] = made.sha
        pull.state, pull.merge_commit_sha, pull.merged_by = "closed", made.sha, by
        pull.merged_at = pull.closed_at = self.world.now()
        await self.tell(
            self._touch(pull, "closed", by),
            *self._pushed(repo, f"refs/heads/{pull.base_ref}", before, made.sha, by),
        )
        return made.sha

    async def edit_title(self, pull: Pull, title: str, by: str | None = None) -> None:
        """Give a pull request another title."""
        changes = {"title": {"from": pull.title}}
        pull.title = title
        await self.tell(self._touch(pull, "edited", by or pull.author, changes=changes))

    async def retarget(self, pull: Pull, base_ref: str, by: str | None = None) -> None:
        """Choose another base branch for a pull request."""
        changes = {"base": {"ref": {"from": pull.base_ref}, "sha": {"from": pull.base_sha}}}
        pull.base_ref, pull.base_sha = base_ref, pull.repo.branches[base_ref]
        await self.tell(self._touch(pull, "edited", by or pull.author, changes=changes))

    async def push(
        self,
        repo: Repo | str,
        ref: str | None = None,
        *,
        by: str = MAINTAINER,
        message: str = "Change something",
        files: Mapping[str, str | bytes] | None = None,
    ) -> str:
        """Push one commit with these files to a branch or tag; returns the new SHA."""
        where = self.world.repo(repo)
        name = ref or where.default_branch
        full = name if name.startswith("refs/") else f"refs/heads/{name}"
        branch = full.removeprefix("refs/heads/")
        before = where.branches.get(branch, "0" * 40)
        made = git.commit(
            where,
            at=self.world.now(),
            message=message,
            author=by,
            parents=(where.branches.get(branch, where.branches[where.default_branch]),),
            files={path: as_bytes(text) for path, text in (files or {}).items()},
        )
        where.branches[branch] = made.sha
        await self.tell(*self._pushed(where, full, before, made.sha, by))
        return made.sha

    async def deliver(
        self,
        event: str,
        payload: dict[str, Any],
        *,
        guid: str | None = None,
        app: App | None = None,
    ) -> Delivery:
        """Deliver any body to an App, the first registered by default, signed and logged."""
        to = app or next(each for each in self.world.apps.values() if each.public_key_pem)
        sent = await self.hooks.send(to, event, payload, guid=guid or str(uuid.uuid4()))
        return _attempted(sent)

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """Press Redeliver: the same body and GUID once more, in a new row of the log."""
        return _attempted(await self.hooks.again(delivery))

    def _commit(self, repo: Repo, parent: str, message: str, author: str, files: Sequence[str]) -> Commit:
        written = {path: f"{message}\n".encode() for path in files}
        now = self.world.now()
        return git.commit(repo, at=now, message=message, author=author, parents=(parent,), files=written)

    def _touch(self, pull: Pull, action: str, by: str, **extra: Any) -> Event:
        pull.updated_at = self.world.now()
        return payloads.pull_request(self.world, pull, action, by, **extra)

    def _labelled(self, pull: Pull, action: str, name: str, by: str) -> Event:
        return self._touch(pull, action, by, label=shapes.label(self.world, pull.repo, name))

    def _head_pushed(self, pull: Pull, *, before: str) -> list[Event]:
        """Return what a push to the head branch causes here: nothing when that is in a fork."""
        if pull.from_fork:
            return []
        pull.repo.branches[pull.head_ref] = pull.head_sha
        ref = f"refs/heads/{pull.head_ref}"
        return self._pushed(pull.repo, ref, before, pull.head_sha, pull.author)

    def _pushed(self, repo: Repo, ref: str, before: str, after: str, by: str) -> list[Event]:
        """Return a push and the check suites that it makes for Apps that may write checks."""
        events = [payloads.push(self.world, repo, ref=ref, before=before, after=after, pusher=by)]
        for each in self.world.installed_on(repo):
            if each.permissions.get("checks") == "write":
                suite = self.world.suite(repo, each.app, after)
                events.append(payloads.check_suite(self.world, suite, "requested", by, only=each.app))
        return events


def as_bytes(text: str | bytes) -> bytes:
    """Return a file's content as it is stored."""
    return text.encode() if isinstance(text, str) else text


def _attempted(delivery: Delivery | None) -> Delivery:
    if delivery is None:
        raise LookupError("nothing was sent: the App has no webhook_url, or a fault dropped it")
    return delivery
