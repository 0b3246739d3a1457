"""How do Apps write in a pull request's conversation? The endpoints of comments and reactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github import payloads
from bot.demo.github.api.call import ApiCall, Route, answer, listing, nothing
from bot.demo.github.refusals import Refused, invalid, missing
from bot.demo.github.shapes import pull as shapes
from bot.demo.github.state import Comment, Reaction
from bot.demo.github.times import from_iso

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.state import Pull

# In characters. The other known bound, 262,144 bytes, follows: a character has at most four.
LONGEST = 65_536


async def list_comments(call: ApiCall) -> web.Response:
    """List a conversation, oldest first."""
    pull = _pull(call)
    since = _since(call)
    rows = [each for each in call.repo.comments.values() if each.pull is pull and each.updated_at >= since]
    return listing(call, rows, shapes.comment)


async def create(call: ApiCall) -> web.Response:
    """Say something."""
    pull = _pull(call)
    comment = Comment(
        id=call.world.new_id(),
        pull=pull,
        body=_text(call),
        user=call.world.user(call.app.bot_login),
        author_association="NONE",
        created_at=call.now,
        updated_at=call.now,
        app=call.app,
    )
    call.repo.comments[comment.id] = comment
    event = payloads.issue_comment(call.world, comment, "created", call.app.bot_login)
    call.later(lambda: call.hooks.emit(event))
    return answer(shapes.comment(call.world, comment), 201)


async def get(call: ApiCall) -> web.Response:
    """Show one comment."""
    return answer(shapes.comment(call.world, _comment(call)))


async def update(call: ApiCall) -> web.Response:
    """Say it differently."""
    comment = _comment(call)
    text = _text(call)
    before, comment.body, comment.updated_at = comment.body, text, call.now
    changes = {"body": {"from": before}}
    event = payloads.issue_comment(call.world, comment, "edited", call.app.bot_login, changes=changes)
    call.later(lambda: call.hooks.emit(event))
    return answer(shapes.comment(call.world, comment))


async def delete(call: ApiCall) -> web.Response:
    """Take it back."""
    comment = _comment(call)
    del call.repo.comments[comment.id]
    event = payloads.issue_comment(call.world, comment, "deleted", call.app.bot_login)
    call.later(lambda: call.hooks.emit(event))
    return nothing()


async def list_reactions(call: ApiCall) -> web.Response:
    """List the emoji under a comment."""
    return listing(call, _comment(call).reactions, shapes.reaction)


async def react(call: ApiCall) -> web.Response:
    """Put an emoji under a comment; the same one twice is one: 200 instead of 201."""
    comment, content = _comment(call), call.body.get("content")
    if content not in shapes.REACTIONS:
        raise invalid(f"content is not one of {shapes.REACTIONS}", resource="Reaction")
    user = call.world.user(call.app.bot_login)
    for each in comment.reactions:
        if each.user == user and each.content == content:
            return answer(shapes.reaction(call.world, each))
    made = Reaction(id=call.world.new_id(), content=content, user=user, at=call.now)
    comment.reactions.append(made)
    return answer(shapes.reaction(call.world, made), 201)


async def unreact(call: ApiCall) -> web.Response:
    """Take an emoji away."""
    comment, number = _comment(call), call.number("reaction")
    found = next((each for each in comment.reactions if each.id == number), None)
    if found is None:
        raise missing()
    comment.reactions.remove(found)
    return nothing()


async def labels(call: ApiCall) -> web.Response:
    """List the labels of a pull request."""
    pull = _pull(call)
    return listing(call, pull.labels, lambda world, name: shapes.label(world, pull.repo, name))


def _since(call: ApiCall) -> int:
    text = call.query("since")
    try:
        return from_iso(text) if text else 0
    except ValueError:
        raise Refused(422, f"since: {text} is not an ISO 8601 time") from None


def _pull(call: ApiCall) -> Pull:
    pull = call.repo.pulls.get(call.number("number"))
    if pull is None:
        raise missing()
    return pull


def _comment(call: ApiCall) -> Comment:
    comment = call.repo.comments.get(call.number("comment"))
    if comment is None:
        raise missing()
    return comment


def _text(call: ApiCall) -> str:
    text = call.body.get("body")
    if not isinstance(text, str):
        raise Refused(422, 'Invalid request.\n\n"body" wasn\'t supplied.')
    if not text.strip():
        raise invalid("Body cannot be blank", resource="IssueComment", field="body")
    if len(text) > LONGEST:
        problem = f"Body is too long (maximum is {LONGEST} characters)"
        raise invalid(problem, resource="IssueComment", field="body")
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
    Route(method="POST", path=ONE + "/reactions", handler=react, needs=WRITE),
    Route(method="DELETE", path=ONE + "/reactions/{reaction}", handler=unreact, needs=WRITE),
    Route(method="GET", path=OF_ISSUE + "/comments", handler=list_comments, needs=READ),
    Route(method="POST", path=OF_ISSUE + "/comments", handler=create, needs=WRITE),
    Route(method="GET", path=OF_ISSUE + "/labels", handler=labels, needs=READ),
)
