"""The table of our calls to GitHub: every call in the code has a line, and every line is of a call in the code."""

import ast
import re
from pathlib import Path

import pytest

from bot.core.errors import GitHubRefused, RetryLater
from bot.github.responses import CALLS, YOUNG_FOR, find_call, judge_refusal

ROOT = Path(__file__).parents[2]
METHODS = {
    "getitem": "GET",
    "getiter": "GET",
    "post": "POST",
    "patch": "PATCH",
    "put": "PUT",
    "delete": "DELETE",
}
PATH = re.compile(
    r"/app|/(app|search)/.*[^/]|/repos/.*/installation"
    r"|(actions/(runs|jobs|artifacts|workflows)|check-runs|commits|compare|pulls|issues|rules)/.*[^/]"
    r"|(collaborators|contents)/.*[^/]"
)
OURS = ("bot/demo/", "bot/web/", "bot/github/responses.py", "bot/github/manifest.py")


def text_of(node):
    """The text of a literal with x in place of what is put in, None where it is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\??[+\w,]+\}", lambda part: "" if part[0].startswith("{?") else "x", node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
        return text_of(ast.Constant("".join(parts)))
    if isinstance(node, ast.BinOp):
        return text_of(node.left)
    return None


def calls_in(file):
    """Each call's method, None where it stands apart from its path, and path."""
    tree, seen = ast.parse(file.read_text()), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            seen |= {*node.values}
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        argument, method = node.args[0], METHODS.get(node.func.attr)
        if method and isinstance(argument, ast.Call) and argument.args:
            argument = argument.args[0]
        text = text_of(argument)
        of_client = node.func.attr == "path" and getattr(node.func.value, "id", "") == "client"
        if argument not in seen and text and (of_client or (method and PATH.fullmatch(text))):
            seen.add(argument)
            yield method, text
    for node in ast.walk(tree):
        text = None if node in seen else text_of(node)
        if text and PATH.fullmatch(text):
            yield None, text


def written():
    return {
        (method, path if path.startswith("/") else f"/repos/o/r/{path}")
        for file in (ROOT / "bot").rglob("*.py")
        if not str(file.relative_to(ROOT)).startswith(OURS)
        for method, path in calls_in(file)
    }


def test_every_call_in_the_code_has_a_line():
    methods = {call.method for call in CALLS}
    calls = written()
    assert len(calls) > 30
    unlisted = [
        (method, path)
        for method, path in calls
        if not any(find_call(each, path) for each in ([method] if method else methods))
    ]
    assert unlisted == []


def test_no_line_is_of_a_call_that_is_never_made():
    made = {
        find_call(each, path)
        for method, path in written()
        for each in ([method] if method else METHODS.values())
    }
    apart = {
        "",
        "collaborators/{login}/permission",
        "actions/runs/{run}/rerun",
        "actions/runs/{run}/rerun-failed-jobs",
    }
    assert [call for call in CALLS if call not in made and call.path not in apart] == []


def test_each_call_has_one_line():
    assert len({(call.method, call.path) for call in CALLS}) == len(CALLS)


@pytest.mark.parametrize(
    ("method", "path", "status", "age", "again"),
    [
        ("POST", "/repos/o/r/check-runs", 422, 0, True),
        ("POST", "/repos/o/r/check-runs", 404, YOUNG_FOR - 1, True),
        ("POST", "/repos/o/r/check-runs", 422, YOUNG_FOR, False),
        ("POST", "/repos/o/r/check-runs", 403, 0, False),
        ("GET", "/repos/o/r/compare/main...abc?per_page=1", 404, 0, True),
        ("GET", "/repos/o/r/contents/a/b/list.yml?ref=main", 404, 0, False),
        ("POST", "/repos/o/r/dispatches", 404, 0, False),
        ("POST", "/repos/o/r/dispatches", 422, 0, False),
        ("DELETE", "/repos/o/r/check-runs/1", 404, 0, False),
    ],
)
def test_only_what_a_young_object_may_be_answered_is_tried_again(method, path, status, age, again):
    found = judge_refusal(GitHubRefused(status, "no"), method, path, age=age)
    assert isinstance(found, RetryLater) is again
