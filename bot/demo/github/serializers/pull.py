"""JSON of pull requests, labels, comments and reactions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bot.demo.github.models import Issue
from bot.demo.github.serializers.repository import api_of, app, html_of, minimal, node_id, repository, user
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from bot.demo.github.models import Comment, Pull, Reaction, Repo
    from bot.demo.github.state import GitHubState

REACTIONS = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")


def label(state: GitHubState, repo: Repo, name: str) -> dict[str, Any]:
    """Return a label of a repository; create it if needed."""
    number = repo.labels.setdefault(name, 0) or state.new_id()
    repo.labels[name] = number
    return {
        "id": number,
        "node_id": node_id("Label", number),
        "url": f"{api_of(state, repo)}/labels/{name}",
        "name": name,
        "color": "ededed",
        "default": False,
        "description": None,
    }


def reference(state: GitHubState, pull: Pull) -> dict[str, Any]:
    """Return a pull request as check runs and workflow runs refer to it."""
    repo = minimal(state, pull.repo)
    return {
        "url": f"{api_of(state, pull.repo)}/pulls/{pull.number}",
        "id": pull.id,
        "number": pull.number,
        "head": {"ref": pull.head_ref, "sha": pull.head_sha, "repo": repo},
        "base": {"ref": pull.base_ref, "sha": pull.base_sha, "repo": repo},
    }


def references(state: GitHubState, repo: Repo, sha: str) -> list[dict[str, Any]]:
    """Return the pull requests that GitHub lists for a commit: none from forks."""
    return [reference(state, each) for each in state.pulls_at(repo, sha) if not each.from_fork]


def pull_request(state: GitHubState, pull: Pull) -> dict[str, Any]:
    """Return a whole pull request."""
    repo = pull.repo
    merged = pull.merged_at is not None
    return listed(state, pull) | {
        "merged": merged,
        "mergeable": None if merged else True,
        "rebaseable": None if merged else True,
        "mergeable_state": "unknown" if merged else "clean",
        "merged_by": user(state, pull.merged_by) if pull.merged_by else None,
        "comments": sum(each.pull is pull for each in repo.comments.values()),
        "review_comments": 0,
        "maintainer_can_modify": pull.from_fork,
        "commits": len(pull.commits),
        "additions": 3 * len(pull.files),
        "deletions": len(pull.files),
        "changed_files": len(pull.files),
    }


def listed(state: GitHubState, pull: Pull) -> dict[str, Any]:
    """Return a pull request as lists contain it."""
    api, html = api_of(state, pull.repo), html_of(state, pull.repo)
    own, issue = f"{api}/pulls/{pull.number}", f"{api}/issues/{pull.number}"
    page = f"{html}/pull/{pull.number}"
    links = {
        "self": own,
        "html": page,
        "issue": issue,
        "comments": f"{issue}/comments",
        "review_comments": f"{own}/comments",
        "review_comment": f"{api}/pulls/comments{{/number}}",
        "commits": f"{own}/commits",
        "statuses": f"{api}/statuses/{pull.head_sha}",
    }
    return {
        "url": own,
        "id": pull.id,
        "node_id": node_id("PullRequest", pull.id),
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": issue,
        "number": pull.number,
        "state": pull.state,
        "locked": False,
        "title": pull.title,
        "user": user(state, pull.author),
        "body": pull.body or None,
        "created_at": iso(pull.created_at),
        "updated_at": iso(pull.updated_at),
        "closed_at": iso(pull.closed_at),
        "merged_at": iso(pull.merged_at),
        "merge_commit_sha": pull.merge_commit_sha,
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "labels": [label(state, pull.repo, name) for name in pull.labels],
        "milestone": None,
        "draft": pull.draft,
        **{f"{name}_url": url for name, url in links.items() if name not in {"self", "html"}},
        "head": _side(state, pull, head=True),
        "base": _side(state, pull, head=False),
        "_links": {name: {"href": url} for name, url in links.items()},
        "author_association": pull.author_association,
        "auto_merge": None,
        "active_lock_reason": None,
    }


def issue(state: GitHubState, pull: Pull) -> dict[str, Any]:
    """Return a pull request as the issue it also is."""
    api = f"{api_of(state, pull.repo)}/issues/{pull.number}"
    fields = listed(state, pull)
    shared = (
        "number", "title", "user", "labels", "state", "locked", "assignee", "assignees",
        "milestone", "created_at", "updated_at", "closed_at", "author_association",
        "active_lock_reason", "draft", "body", "html_url",
    )  # fmt: skip
    return {key: fields[key] for key in shared} | {
        "url": api,
        "repository_url": api_of(state, pull.repo),
        "labels_url": f"{api}/labels{{/name}}",
        "comments_url": f"{api}/comments",
        "events_url": f"{api}/events",
        "timeline_url": f"{api}/timeline",
        "id": pull.issue_id,
        "node_id": node_id("Issue", pull.issue_id),
        "comments": sum(each.pull is pull for each in pull.repo.comments.values()),
        "pull_request": {
            key: fields[key] for key in ("url", "html_url", "diff_url", "patch_url", "merged_at")
        },
        "reactions": _rollup(api, []),
        "performed_via_github_app": None,
        "state_reason": None,
    }


def plain_issue(state: GitHubState, which: Issue) -> dict[str, Any]:
    """Return an issue that is no pull request."""
    repo = which.repo
    api = f"{api_of(state, repo)}/issues/{which.number}"
    return {
        "url": api,
        "repository_url": api_of(state, repo),
        "labels_url": f"{api}/labels{{/name}}",
        "comments_url": f"{api}/comments",
        "events_url": f"{api}/events",
        "timeline_url": f"{api}/timeline",
        "html_url": f"{html_of(state, repo)}/issues/{which.number}",
        "id": which.id,
        "node_id": node_id("Issue", which.id),
        "number": which.number,
        "title": which.title,
        "user": user(state, which.author),
        "labels": [label(state, repo, name) for name in which.labels],
        "state": which.state,
        "state_reason": "completed" if which.state == "closed" else None,
        "locked": False,
        "active_lock_reason": None,
        "assignee": None,
        "assignees": [],
        "milestone": None,
        "comments": sum(each.pull is which for each in repo.comments.values()),
        "created_at": iso(which.created_at),
        "updated_at": iso(which.updated_at),
        "closed_at": iso(which.closed_at),
        "author_association": which.author_association,
        "body": which.body or None,
        "reactions": _rollup(api, []),
        "performed_via_github_app": None,
    }


def any_issue(state: GitHubState, which: Pull | Issue) -> dict[str, Any]:
    """Return an issue or a pull request as the issue that it is."""
    return plain_issue(state, which) if isinstance(which, Issue) else issue(state, which)


def comment(state: GitHubState, which: Comment) -> dict[str, Any]:
    """Return a comment."""
    repo, number = which.pull.repo, which.pull.number
    page = "issues" if isinstance(which.pull, Issue) else "pull"
    api = f"{api_of(state, repo)}/issues/comments/{which.id}"
    return {
        "url": api,
        "html_url": f"{html_of(state, repo)}/{page}/{number}#issuecomment-{which.id}",
        "issue_url": f"{api_of(state, repo)}/issues/{number}",
        "id": which.id,
        "node_id": node_id("IssueComment", which.id),
        "user": user(state, which.user),
        "created_at": iso(which.created_at),
        "updated_at": iso(which.updated_at),
        "author_association": which.author_association,
        "body": which.body,
        "reactions": _rollup(api, which.reactions),
        "performed_via_github_app": app(state, which.app) if which.app else None,
    }


def reaction(state: GitHubState, which: Reaction) -> dict[str, Any]:
    """Return a reaction."""
    return {
        "id": which.id,
        "node_id": node_id("Reaction", which.id),
        "user": user(state, which.user),
        "content": which.content,
        "created_at": iso(which.at),
    }


def changed_file(
    state: GitHubState, repo: Repo, sha: str, path: str, *, before: str | None = None
) -> dict[str, Any]:
    """Return one changed file of a pull request or a comparison that ends with this commit.

    `before` is the old name of a renamed one.
    """
    html, api = html_of(state, repo), api_of(state, repo)
    return {
        "sha": sha[::-1],
        "filename": path,
        "status": "renamed" if before else "modified",
        **({"previous_filename": before} if before else {}),
        "additions": 3,
        "deletions": 1,
        "changes": 4,
        "blob_url": f"{html}/blob/{sha}/{path}",
        "raw_url": f"{html}/raw/{sha}/{path}",
        "contents_url": f"{api}/contents/{path}?ref={sha}",
        "patch": "@@ -1,2 +1,4 @@\n-old\n+new\n+new\n+new\n same",
    }


def _side(state: GitHubState, pull: Pull, *, head: bool) -> dict[str, Any]:
    ref, sha = (pull.head_ref, pull.head_sha) if head else (pull.base_ref, pull.base_sha)
    owner = pull.author if head and pull.from_fork else pull.repo.owner
    repo = repository(state, pull.repo)
    if owner != pull.repo.owner:
        repo = _forked(state, repo, pull, owner)
    return {
        "label": f"{owner}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": user(state, owner),
        "repo": repo,
    }


def _forked(state: GitHubState, repo: dict[str, Any], pull: Pull, owner: str) -> dict[str, Any]:
    """Return the author's fork: the same repository with another name, id and owner."""
    ours, theirs = f"/{pull.repo.full_name}", f"/{owner}/{pull.repo.name}"
    moved = {
        key: value.replace(ours, theirs) if isinstance(value, str) else value for key, value in repo.items()
    }
    account = state.user(owner)
    number = pull.repo.id * 1000 + account.id % 1000
    return moved | {
        "id": number,
        "node_id": node_id("Repository", number),
        "full_name": theirs[1:],
        "owner": user(state, account),
        "fork": True,
    }


def _rollup(api: str, reactions: list[Reaction]) -> dict[str, Any]:
    counted = Counter(each.content for each in reactions)
    return {
        "url": f"{api}/reactions",
        "total_count": len(reactions),
        **{name: counted[name] for name in REACTIONS},
    }
