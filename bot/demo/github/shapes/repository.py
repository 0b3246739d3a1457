"""What does GitHub say about a repository and its commits?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github.shapes.accounts import node_id, user
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from bot.demo.github.state import Commit, Repo
    from bot.demo.github.world import World

LINKS = {
    "forks_url": "forks",
    "keys_url": "keys{/key_id}",
    "collaborators_url": "collaborators{/collaborator}",
    "teams_url": "teams",
    "hooks_url": "hooks",
    "issue_events_url": "issues/events{/number}",
    "events_url": "events",
    "assignees_url": "assignees{/user}",
    "branches_url": "branches{/branch}",
    "tags_url": "tags",
    "blobs_url": "git/blobs{/sha}",
    "git_tags_url": "git/tags{/sha}",
    "git_refs_url": "git/refs{/sha}",
    "trees_url": "git/trees{/sha}",
    "statuses_url": "statuses/{sha}",
    "languages_url": "languages",
    "stargazers_url": "stargazers",
    "contributors_url": "contributors",
    "subscribers_url": "subscribers",
    "subscription_url": "subscription",
    "commits_url": "commits{/sha}",
    "git_commits_url": "git/commits{/sha}",
    "comments_url": "comments{/number}",
    "issue_comment_url": "issues/comments{/number}",
    "contents_url": "contents/{+path}",
    "compare_url": "compare/{base}...{head}",
    "merges_url": "merges",
    "archive_url": "{archive_format}{/ref}",
    "downloads_url": "downloads",
    "issues_url": "issues{/number}",
    "pulls_url": "pulls{/number}",
    "milestones_url": "milestones{/number}",
    "notifications_url": "notifications{?since,all,participating}",
    "labels_url": "labels{/name}",
    "releases_url": "releases{/id}",
    "deployments_url": "deployments",
}


def api_of(world: World, repo: Repo) -> str:
    """Return the address below which a repository's API lives."""
    return f"{world.api_url}/repos/{repo.full_name}"


def html_of(world: World, repo: Repo) -> str:
    """Return a repository's address for people."""
    return f"{world.url}/{repo.full_name}"


def minimal(world: World, repo: Repo) -> dict[str, Any]:
    """Return a repository as check runs and installation events mention it."""
    return {"id": repo.id, "url": api_of(world, repo), "name": repo.name}


def named(world: World, repo: Repo) -> dict[str, Any]:
    """Return what every rendering of a repository begins with."""
    api = api_of(world, repo)
    return {
        "id": repo.id,
        "node_id": node_id("Repository", repo.id),
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
        "owner": user(world, repo.owner),
        "html_url": html_of(world, repo),
        "description": None,
        "fork": False,
        "url": api,
        **{name: f"{api}/{path}" for name, path in LINKS.items()},
    }


def repository(world: World, repo: Repo) -> dict[str, Any]:
    """Return a whole repository."""
    html = html_of(world, repo)
    open_pulls = sum(pull.state == "open" for pull in repo.pulls.values())
    return named(world, repo) | {
        "created_at": iso(repo.created_at),
        "updated_at": iso(repo.created_at),
        "pushed_at": iso(max(commit.at for commit in repo.commits.values())),
        "git_url": f"{html}.git".replace("http:", "git:"),
        "ssh_url": f"git@127.0.0.1:{repo.full_name}.git",
        "clone_url": f"{html}.git",
        "svn_url": html,
        "homepage": None,
        "size": 120,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": "Python",
        "has_issues": True,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": True,
        "has_pages": False,
        "has_discussions": False,
        "forks_count": 1,
        "mirror_url": None,
        "archived": repo.archived,
        "disabled": False,
        "open_issues_count": open_pulls,
        "license": None,
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "topics": [],
        "visibility": "private" if repo.private else "public",
        "forks": 1,
        "open_issues": open_pulls,
        "watchers": 0,
        "default_branch": repo.default_branch,
        "custom_properties": {},
    }


def signature(commit: Commit) -> dict[str, Any]:
    """Return a commit's author or committer."""
    return {
        "name": commit.author,
        "email": f"{commit.author}@users.noreply.github.com",
        "date": iso(commit.at),
    }


def commit(world: World, repo: Repo, which: Commit) -> dict[str, Any]:
    """Return a commit as the commits API does."""
    api = api_of(world, repo)
    return {
        "sha": which.sha,
        "node_id": node_id("Commit", repo.id),
        "commit": {
            "author": signature(which),
            "committer": signature(which),
            "message": which.message,
            "tree": {"sha": which.sha[::-1], "url": f"{api}/git/trees/{which.sha[::-1]}"},
            "url": f"{api}/git/commits/{which.sha}",
            "comment_count": 0,
        },
        "url": f"{api}/commits/{which.sha}",
        "html_url": f"{html_of(world, repo)}/commit/{which.sha}",
        "comments_url": f"{api}/commits/{which.sha}/comments",
        "author": user(world, which.author),
        "committer": user(world, which.author),
        "parents": [
            {
                "sha": sha,
                "url": f"{api}/commits/{sha}",
                "html_url": f"{html_of(world, repo)}/commit/{sha}",
            }
            for sha in which.parents
        ],
    }


def pushed_commit(world: World, repo: Repo, which: Commit) -> dict[str, Any]:
    """Return a commit as push events list it."""
    person = {
        "name": which.author,
        "email": f"{which.author}@users.noreply.github.com",
        "username": which.author,
    }
    known = {path for parent in which.parents[:1] for path in repo.commits[parent].tree}
    return {
        "id": which.sha,
        "tree_id": which.sha[::-1],
        "distinct": True,
        "message": which.message,
        "timestamp": iso(which.at),
        "url": f"{html_of(world, repo)}/commit/{which.sha}",
        "author": person,
        "committer": person,
        "added": [path for path in which.changed if path not in known],
        "removed": [],
        "modified": [path for path in which.changed if path in known],
    }


def head_commit(which: Commit) -> dict[str, Any]:
    """Return a commit as check suites and workflow runs mention it."""
    person = {"name": which.author, "email": f"{which.author}@users.noreply.github.com"}
    return {
        "id": which.sha,
        "tree_id": which.sha[::-1],
        "message": which.message,
        "timestamp": iso(which.at),
        "author": person,
        "committer": person,
    }
