"""Endpoints of comments, reactions and labels of pull requests and issues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github import payloads
from bot.demo.github.api.call import ApiCall, Route, json_response, no_content, paginated
from bot.demo.github.faults import ApiError, not_found, validation_failed
from bot.demo.github.models import Comment, Reaction
from bot.demo.github.serializers import pull as serializers
from bot.demo.github.times import from_iso

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.models import Issue, Pull

# In characters. The other known limit, 262,144 bytes, follows: a character has at most four bytes.
MAX_LENGTH = 65_536


async def list_comments(call: ApiCall) -> web.Response:
    """List the comments of a pull request or issue, oldest first."""
    pull = _subject(call)
    since = _since(call)
    rows = [each for each in call.repo.comments.values() if each.pull is pull and each.updated_at >= since]
    return paginated(call, rows, serializers.comment)


async def create(call: ApiCall) -> web.Response:
    """Create a comment."""
    pull = _subject(call)
    comment = Comment(
        id=call.state.new_id(),
        pull=pull,
        body=_text(call),
        user=call.state.user(call.app.bot_login),
        author_association="NONE",
        created_at=call.now,
        updated_at=call.now,
        app=call.app,
    )
    call.repo.comments[comment.id] = comment
    event = payloads.issue_comment(call.state, comment, "created", call.app.bot_login)
    call.after_response(lambda: call.webhooks.emit(event))
    return json_response(serializers.comment(call.state, comment), 201)


async def get(call: ApiCall) -> web.Response:
    """Show one comment."""
    return json_response(serializers.comment(call.state, _comment(call)))


async def update(call: ApiCall) -> web.Response:
    """Update a comment."""
    comment = _comment(call)
    text = _text(call)
    before, comment.body, comment.updated_at = comment.body, text, call.now
    changes = {"body": {"from": before}}
    event = payloads.issue_comment(call.state, comment, "edited", call.app.bot_login, changes=changes)
    call.after_response(lambda: call.webhooks.emit(event))
    return json_response(serializers.comment(call.state, comment))


async def delete(call: ApiCall) -> web.Response:
    """Delete a comment."""
    comment = _comment(call)
    del call.repo.comments[comment.id]
    event = payloads.issue_comment(call.state, comment, "deleted", call.app.bot_login)
    call.after_response(lambda: call.webhooks.emit(event))
    return no_content()


async def list_reactions(call: ApiCall) -> web.Response:
    """List the reactions to a comment."""
    return paginated(call, _comment(call).reactions, serializers.reaction)


async def create_reaction(call: ApiCall) -> web.Response:
    """Add a reaction; one that exists already is returned, with 200 instead of 201."""
    comment, content = _comment(call), call.body.get("content")
    if content not in serializers.REACTIONS:
        raise validation_failed(f"content is not one of {serializers.REACTIONS}", resource="Reaction")
    user = call.state.user(call.app.bot_login)
    for each in comment.reactions:
        if each.user == user and each.content == content:
            return json_response(serializers.reaction(call.state, each))
    reaction = Reaction(id=call.state.new_id(), content=content, user=user, at=call.now)
    comment.reactions.append(reaction)
    return json_response(serializers.reaction(call.state, reaction), 201)


async def delete_reaction(call: ApiCall) -> web.Response:
    """Delete a reaction."""
    comment, number = _comment(call), call.path_number("reaction")
    found = next((each for each in comment.reactions if each.id == number), None)
    if found is None:
        raise not_found()
    comment.reactions.remove(found)
    return no_content()


async def labels(call: ApiCall) -> web.Response:
    """List the labels of a pull request or issue."""
    pull = _subject(call)
    return paginated(call, pull.labels, lambda state, name: serializers.label(state, pull.repo, name))


def _since(call: ApiCall) -> int:
    text = call.query("since")
    try:
        return from_iso(text) if text else 0
    except ValueError:
        raise ApiError(422, f"since: {text} is not an ISO 8601 time") from None


def _subject(call: ApiCall) -> Pull | Issue:
    number = call.path_number("number")
    found = call.repo.pulls.get(number) or call.repo.issues.get(number)
    if found is None:
        raise not_found()
    return found


def _comment(call: ApiCall) -> Comment:
    comment = call.repo.comments.get(call.path_number("comment"))
    if comment is None:
        raise not_found()
    return comment


def _text(call: ApiCall) -> str:
    text = call.body.get("body")
    if not isinstance(text, str):
        raise ApiError(422, 'Invalid request.\n\n"body" wasn\'t supplied.')
    if not text.strip():
        raise validation_failed("Body cannot be blank", resource="IssueComment", field="body")
    if len(text) > MAX_LENGTH:
        problem = f"Body is too long (maximum is {MAX_LENGTH} characters)"
        raise validation_failed(problem, resource="IssueComment", field="body")
    return text


OF_ISSUE = "/repos/{owner}/{repo}/issues/{number}"
ONE = "/repos/{owner}/{repo}/issues/comments/{comment}"
READ = ("issues:read", "pull_requests:read")
WRITE = ("issues:write", "pull_requests:write")
ROUTES = (
    Route(method="GET", path=ONE, handler=get, needs=READ),
    Route(method="PATCH", path=ONE, handler=update, needs=WRITE),
    Route(method="DELETE", path=ONE, handler=delete, needs=WRITE),
    Route(method="GET", path=ONE + "/reactions", handler=list_reactions, needs=READ),
    Route(method="POST", path=ONE + "/reactions", handler=create_reaction, needs=WRITE),
    Route(method="DELETE", path=ONE + "/reactions/{reaction}", handler=delete_reaction, needs=WRITE),
    Route(method="GET", path=OF_ISSUE + "/comments", handler=list_comments, needs=READ),
    Route(method="POST", path=OF_ISSUE + "/comments", handler=create, needs=WRITE),
    Route(method="GET", path=OF_ISSUE + "/labels", handler=labels, needs=READ),
)
