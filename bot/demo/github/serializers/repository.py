"""JSON of repositories and commits."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from bot.demo.github.times import iso

if TYPE_CHECKING:
    from bot.demo.github.models import Commit, Repo
    from bot.demo.github.state import GitHubState

if TYPE_CHECKING:
    from bot.demo.github.accounts import App, Installation, User
    from bot.demo.github.state import GitHubState


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


def api_of(state: GitHubState, repo: Repo) -> str:
    """Return the API address of a repository."""
    return f"{state.api_url}/repos/{repo.full_name}"


def html_of(state: GitHubState, repo: Repo) -> str:
    """Return the web address of a repository."""
    return f"{state.url}/{repo.full_name}"


def minimal(state: GitHubState, repo: Repo) -> dict[str, Any]:
    """Return a repository as check runs and installation events refer to it."""
    return {"id": repo.id, "url": api_of(state, repo), "name": repo.name}


def named(state: GitHubState, repo: Repo) -> dict[str, Any]:
    """Return the fields that every form of a repository has."""
    api = api_of(state, repo)
    return {
        "id": repo.id,
        "node_id": node_id("Repository", repo.id),
        "name": repo.name,
        "full_name": repo.full_name,
        "private": repo.private,
        "owner": user(state, repo.owner),
        "html_url": html_of(state, repo),
        "description": None,
        "fork": False,
        "url": api,
        **{name: f"{api}/{path}" for name, path in LINKS.items()},
    }


def repository(state: GitHubState, repo: Repo) -> dict[str, Any]:
    """Return a whole repository."""
    html = html_of(state, repo)
    open_pulls = sum(pull.state == "open" for pull in repo.pulls.values())
    return named(state, repo) | {
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


def commit(state: GitHubState, repo: Repo, which: Commit) -> dict[str, Any]:
    """Return a commit as the commits API has it."""
    api = api_of(state, repo)
    return {
        "sha": which.sha,
        "node_id": node_id("Commit", repo.id),
        "commit": {
            "author": signature(which),
            "committer": signature(which),
            "message": which.message,
            "tree": {"sha": which.tree_sha, "url": f"{api}/git/trees/{which.tree_sha}"},
            "url": f"{api}/git/commits/{which.sha}",
            "comment_count": 0,
        },
        "url": f"{api}/commits/{which.sha}",
        "html_url": f"{html_of(state, repo)}/commit/{which.sha}",
        "comments_url": f"{api}/commits/{which.sha}/comments",
        "author": user(state, which.author),
        "committer": user(state, which.author),
        "parents": [
            {
                "sha": sha,
                "url": f"{api}/commits/{sha}",
                "html_url": f"{html_of(state, repo)}/commit/{sha}",
            }
            for sha in which.parents
        ],
    }


def pushed_commit(state: GitHubState, repo: Repo, which: Commit) -> dict[str, Any]:
    """Return a commit as push events contain it."""
    person = {
        "name": which.author,
        "email": f"{which.author}@users.noreply.github.com",
        "username": which.author,
    }
    known = {path for parent in which.parents[:1] for path in repo.commits[parent].tree}
    return {
        "id": which.sha,
        "tree_id": which.tree_sha,
        "distinct": True,
        "message": which.message,
        "timestamp": iso(which.at),
        "url": f"{html_of(state, repo)}/commit/{which.sha}",
        "author": person,
        "committer": person,
        "added": [path for path in which.changed if path not in known],
        "removed": [],
        "modified": [path for path in which.changed if path in known],
    }


def head_commit(which: Commit) -> dict[str, Any]:
    """Return a commit as check suites and workflow runs refer to it."""
    person = {"name": which.author, "email": f"{which.author}@users.noreply.github.com"}
    return {
        "id": which.sha,
        "tree_id": which.tree_sha,
        "message": which.message,
        "timestamp": iso(which.at),
        "author": person,
        "committer": person,
    }


def node_id(kind: str, number: int) -> str:
    """Return an opaque GraphQL id."""
    return base64.b64encode(f"0{len(kind)}:{kind}{number}".encode()).decode()


def user(state: GitHubState, who: User | str) -> dict[str, Any]:
    """Return an account as it is embedded in other objects."""
    account = state.user(who) if isinstance(who, str) else who
    api = f"{state.api_url}/users/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": node_id(account.type, account.id),
        "avatar_url": f"{state.url}/avatars/u/{account.id}?v=4",
        "gravatar_id": "",
        "url": api,
        "html_url": f"{state.url}/{account.login}",
        "followers_url": f"{api}/followers",
        "following_url": f"{api}/following{{/other_user}}",
        "gists_url": f"{api}/gists{{/gist_id}}",
        "starred_url": f"{api}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{api}/subscriptions",
        "organizations_url": f"{api}/orgs",
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events{{/privacy}}",
        "received_events_url": f"{api}/received_events",
        "type": account.type,
        "user_view_type": "public",
        "site_admin": False,
    }


def organization(state: GitHubState, login: str) -> dict[str, Any]:
    """Return the organization of a webhook body."""
    account = state.user(login, "Organization")
    api = f"{state.api_url}/orgs/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": node_id("Organization", account.id),
        "url": api,
        "repos_url": f"{api}/repos",
        "events_url": f"{api}/events",
        "hooks_url": f"{api}/hooks",
        "issues_url": f"{api}/issues",
        "members_url": f"{api}/members{{/member}}",
        "public_members_url": f"{api}/public_members{{/member}}",
        "avatar_url": f"{state.url}/avatars/u/{account.id}?v=4",
        "description": "",
    }


def app(state: GitHubState, which: App) -> dict[str, Any]:
    """Return a GitHub App."""
    return {
        "id": which.app_id,
        "client_id": which.client_id,
        "slug": which.slug,
        "node_id": node_id("App", which.app_id),
        "owner": user(state, "octocat"),
        "name": which.slug,
        "description": "",
        "external_url": f"{state.url}/apps/{which.slug}",
        "html_url": f"{state.url}/apps/{which.slug}",
        "created_at": iso(which.created_at),
        "updated_at": iso(which.created_at),
        "permissions": dict(which.permissions),
        "events": list(which.events),
    }


def installation(state: GitHubState, which: Installation) -> dict[str, Any]:
    """Return an App's installation on an account."""
    account = state.user(which.account)
    return {
        "id": which.id,
        "client_id": which.app.client_id,
        "account": user(state, account),
        "repository_selection": "selected",
        "access_tokens_url": f"{state.api_url}/app/installations/{which.id}/access_tokens",
        "repositories_url": f"{state.api_url}/installation/repositories",
        "html_url": f"{state.url}/organizations/{account.login}/settings/installations/{which.id}",
        "app_id": which.app.app_id,
        "app_slug": which.app.slug,
        "target_id": account.id,
        "target_type": account.type,
        "permissions": dict(which.permissions),
        "events": list(which.events),
        "created_at": iso(which.created_at),
        "updated_at": iso(which.suspended_at or which.created_at),
        "single_file_name": None,
        "has_multiple_single_files": False,
        "single_file_paths": [],
        "suspended_by": None if which.suspended_at is None else user(state, "alice"),
        "suspended_at": iso(which.suspended_at),
    }
