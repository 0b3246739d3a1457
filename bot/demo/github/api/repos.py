"""Endpoints of repositories, commits, files and pull requests, all to read."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.demo.github import git
from bot.demo.github.api.call import ApiCall, Route, json_response, paginated
from bot.demo.github.faults import ApiError, not_found
from bot.demo.github.serializers import pull as pulls
from bot.demo.github.serializers import repository
from bot.demo.github.serializers.repository import api_of, html_of

if TYPE_CHECKING:
    from bot.demo.github.models import Commit, Pull, Repo
    from bot.demo.github.state import GitHubState

MAX_INLINE = 1024 * 1024  # bytes of a file included in the JSON form


async def get_repo(call: ApiCall) -> web.Response:
    """Show the repository."""
    counted = {"network_count": 1, "subscribers_count": 0}
    return json_response(repository.repository(call.state, call.repo) | counted)


async def permission(call: ApiCall) -> web.Response:
    """Show a person's permission in the repository."""
    login = call.path_text("login")
    role = call.state.role(call.repo, login)
    user = repository.user(call.state, login)
    return json_response({"permission": role, "role_name": role, "user": user | {"role_name": role}})


async def list_pulls(call: ApiCall) -> web.Response:
    """List pull requests, newest first."""
    state, head, base = call.query("state", "open"), call.query("head"), call.query("base")
    rows = [
        each
        for each in sorted(call.repo.pulls.values(), key=lambda pull: -pull.number)
        if state in {"all", each.state}
        and base in {"", each.base_ref}
        and head in {"", f"{_head_owner(each)}:{each.head_ref}"}
    ]
    return paginated(call, rows, pulls.listed)


async def get_pull(call: ApiCall) -> web.Response:
    """Show one pull request."""
    return json_response(pulls.pull_request(call.state, _pull(call)))


async def pull_files(call: ApiCall) -> web.Response:
    """List the files a pull request changes."""
    pull = _pull(call)
    return paginated(
        call,
        pull.files,
        lambda state, path: pulls.changed_file(
            state, pull.repo, pull.head_sha, path, before=pull.renamed.get(path)
        ),
    )


async def pull_commits(call: ApiCall) -> web.Response:
    """List a pull request's commits, oldest first."""
    rows = [call.repo.commits[sha] for sha in _pull(call).commits]
    return paginated(call, rows, lambda state, row: repository.commit(state, call.repo, row))


async def pulls_of_commit(call: ApiCall) -> web.Response:
    """List the pull requests that contain a commit."""
    commit = _commit(call, call.path_text("ref"))
    rows = [each for each in call.repo.pulls.values() if commit.sha in each.commits]
    return paginated(call, rows, pulls.listed)


async def create_ref(call: ApiCall) -> web.Response:
    """Create a tag; branches are pushed in this simulation."""
    name, sha = str(call.body.get("ref") or ""), str(call.body.get("sha") or "")
    if not name.startswith("refs/tags/"):
        raise ApiError(422, "Reference name must start with 'refs/'.")
    if sha not in call.repo.commits:
        raise ApiError(422, "Object does not exist")
    if name in call.repo.branches:
        raise ApiError(422, "Reference already exists")
    call.repo.branches[name] = sha
    about = {"type": "commit", "sha": sha, "url": f"{api_of(call.state, call.repo)}/git/commits/{sha}"}
    url = f"{api_of(call.state, call.repo)}/git/{name}"
    return json_response({"ref": name, "node_id": f"REF_{sha[:8]}", "url": url, "object": about}, 201)


async def get_commit(call: ApiCall) -> web.Response:
    """Show one commit."""
    return json_response(repository.commit(call.state, call.repo, _commit(call, call.path_text("ref"))))


async def branch_rules(call: ApiCall) -> web.Response:
    """List the rules that apply to a branch: one for each required check, and one that is of another kind."""
    names = call.repo.required_checks.get(call.path_text("branch"), [])
    rules: list[dict[str, Any]] = [
        {"type": "deletion", "ruleset_source_type": "Repository", "ruleset_id": 41}
    ]
    rules += [
        {
            "type": "required_status_checks",
            "ruleset_source_type": "Repository",
            "ruleset_source": call.repo.full_name,
            "ruleset_id": 42,
            "parameters": {
                "strict_required_status_checks_policy": False,
                "required_status_checks": [{"context": name}],
            },
        }
        for name in names
    ]
    return paginated(call, rules, lambda _state, rule: rule)


async def list_commits(call: ApiCall) -> web.Response:
    """List the history of a branch or commit, newest first."""
    start = _commit(call, call.query("sha") or call.repo.default_branch)
    rows = list(git.history(call.repo, start.sha))
    return paginated(call, rows, lambda state, row: repository.commit(state, call.repo, row))


async def compare(call: ApiCall) -> web.Response:
    """Compare two commits."""
    base_name, dots, head_name = call.path_text("basehead").partition("...")
    if not dots:
        raise not_found()
    repo = call.repo
    base, head = _compared(call, base_name, head_name)
    common = git.merge_base(repo, base.sha, head.sha)
    if common is None:
        raise not_found(f"No common ancestor between {base_name} and {head_name}.")
    ahead = git.only_in(repo, head.sha, base.sha)
    behind = git.only_in(repo, base.sha, head.sha)
    sides = (bool(ahead), bool(behind))
    status = {
        (True, False): "ahead",
        (False, True): "behind",
        (True, True): "diverged",
        (False, False): "identical",
    }[sides]
    html = f"{html_of(call.state, repo)}/compare/{base_name}...{head_name}"
    return json_response(
        {
            "url": f"{api_of(call.state, repo)}/compare/{base_name}...{head_name}",
            "html_url": html,
            "permalink_url": html,
            "diff_url": f"{html}.diff",
            "patch_url": f"{html}.patch",
            "base_commit": repository.commit(call.state, repo, base),
            "merge_base_commit": repository.commit(call.state, repo, common),
            "status": status,
            "ahead_by": len(ahead),
            "behind_by": len(behind),
            "total_commits": len(ahead),
            "commits": [repository.commit(call.state, repo, each) for each in ahead],
            "files": [
                pulls.changed_file(call.state, repo, head.sha, path)
                for path in sorted({path for each in ahead for path in each.changed})
            ],
        }
    )


async def branches_where_head(call: ApiCall) -> web.Response:
    """List the branches with this head: none of forks, although their commits are visible here."""
    sha = _commit(call, call.path_text("sha")).sha
    heads = [name for name, head in sorted(call.repo.branches.items()) if head == sha]
    return json_response([{"name": name, "commit": {"sha": sha}, "protected": False} for name in heads])


async def contents(call: ApiCall) -> web.Response:
    """Show a file, raw or as JSON, or list a folder."""
    commit = git.resolve(call.repo, call.query("ref") or call.repo.default_branch)
    if commit is None:
        raise not_found(f"No commit found for the ref {call.query('ref')}")
    path = call.path_text("path").strip("/")
    if path in commit.tree:
        return _file(call, path, commit.tree[path])
    inside = {
        name.removeprefix(f"{path}/" if path else "").split("/")[0]
        for name in commit.tree
        if not path or name.startswith(f"{path}/")
    }
    if not inside:
        raise not_found()
    names = [f"{path}/{name}" if path else name for name in sorted(inside)]
    return json_response([_entry(call.state, call.repo, each, commit.tree.get(each)) for each in names])


def _file(call: ApiCall, path: str, data: bytes) -> web.Response:
    if "raw" in call.request.headers.get("Accept", ""):
        return web.Response(body=data, content_type="application/vnd.github.raw+json")
    inline = len(data) <= MAX_INLINE
    return json_response(
        _entry(call.state, call.repo, path, data)
        | {
            "content": base64.encodebytes(data).decode() if inline else "",
            "encoding": "base64" if inline else "none",
        }
    )


def _entry(state: GitHubState, repo: Repo, path: str, data: bytes | None) -> dict[str, Any]:
    """Return a file, or a folder when `data` is None."""
    blob = b"blob %d\0" % len(data or b"") + (data or path.encode())
    sha = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    links = {
        "self": f"{api_of(state, repo)}/contents/{path}",
        "html": f"{html_of(state, repo)}/blob/{repo.default_branch}/{path}",
        "git": f"{api_of(state, repo)}/git/blobs/{sha}",
    }
    return {
        "type": "dir" if data is None else "file",
        "size": len(data or b""),
        "name": path.rpartition("/")[2],
        "path": path,
        "sha": sha,
        "url": links["self"],
        "html_url": links["html"],
        "git_url": links["git"],
        "download_url": None,
        "_links": links,
    }


def _compared(call: ApiCall, *names: str) -> list[Commit]:
    """Return the commits of a comparison; the owner of an `owner:branch` name is ignored."""
    found = [git.resolve(call.repo, name.rpartition(":")[2]) for name in names]
    if None in found:
        raise not_found()
    return [each for each in found if each is not None]


def _pull(call: ApiCall) -> Pull:
    pull = call.repo.pulls.get(call.path_number("number"))
    if pull is None:
        raise not_found()
    return pull


def _head_owner(pull: Pull) -> str:
    return pull.author if pull.from_fork else pull.repo.owner


def _commit(call: ApiCall, ref: str) -> Commit:
    commit = git.resolve(call.repo, ref)
    if commit is None:
        raise ApiError(422, f"No commit found for SHA: {ref}")
    return commit


REPO = "/repos/{owner}/{repo}"
PULLS, CONTENTS = ("pull_requests:read",), ("contents:read",)
ROUTES = (
    Route(method="GET", path=REPO, handler=get_repo),
    Route(method="GET", path="/repositories/{repository}", handler=get_repo),
    Route(method="GET", path=REPO + "/collaborators/{login}/permission", handler=permission),
    Route(method="GET", path=REPO + "/pulls", handler=list_pulls, needs=PULLS),
    Route(method="GET", path=REPO + "/pulls/{number}", handler=get_pull, needs=PULLS),
    Route(method="GET", path=REPO + "/pulls/{number}/files", handler=pull_files, needs=PULLS),
    Route(method="GET", path=REPO + "/pulls/{number}/commits", handler=pull_commits, needs=PULLS),
    Route(method="GET", path=REPO + "/rules/branches/{branch:.+}", handler=branch_rules),
    Route(method="POST", path=REPO + "/git/refs", handler=create_ref, needs=("contents:write",)),
    Route(method="GET", path=REPO + "/commits", handler=list_commits, needs=CONTENTS),
    Route(method="GET", path=REPO + "/commits/{ref:.+}/pulls", handler=pulls_of_commit, needs=PULLS),
    Route(
        method="GET",
        path=REPO + "/commits/{sha}/branches-where-head",
        handler=branches_where_head,
        needs=CONTENTS,
    ),
    Route(method="GET", path=REPO + "/commits/{ref:.+}", handler=get_commit, needs=CONTENTS),
    Route(method="GET", path=REPO + "/compare/{basehead:.+}", handler=compare, needs=CONTENTS),
    Route(method="GET", path=REPO + "/contents/{path:.*}", handler=contents, needs=CONTENTS),
)
