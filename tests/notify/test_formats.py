"""What is sent: JSON of ours, Slack's blocks, a card for Teams; no text from outside means anything in them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from bot.notify.sending import MOST_TEAMS, body_of, sign_notice

HOSTILE = "<!channel> @everyone [x](https://evil.example) *bold* \u202e\x00`code` & <b>"


def notice(**changed):
    return {
        "id": "6f1c2f9e-0000-4000-8000-000000000001",
        "audience": "public",
        "event": "backend_red",
        "at": 1_790_000_000_000,
        "began_at": None,
        "heading": "npu (L3) turned red",
        "lines": ["62 % of 40 runs passed in 24 hours"],
        "repo": "org/upstream",
        "branch": "",
        "backend": "org/npu",
        "oncalls": ["alice"],
        "path": "/oot/org/npu",
    } | changed


def body(kind, **changed):
    return json.loads(body_of(notice(**changed), kind=kind, url="https://bot.example"))


def test_json_of_ours():
    assert body("json") == {
        "version": 1,
        "id": "6f1c2f9e-0000-4000-8000-000000000001",
        "type": "backend_red",
        "timestamp": "2026-09-21T14:13:20Z",
        "data": {
            "heading": "npu (L3) turned red",
            "lines": ["62 % of 40 runs passed in 24 hours"],
            "since": None,
            "repository": "org/upstream",
            "branch": None,
            "backend": "org/npu",
            "oncalls": ["alice"],
            "url": "https://bot.example/oot/org/npu",
        },
    }


def test_slack_gets_a_header_and_a_section():
    assert body("slack") == {
        "text": "✕ npu (L3) turned red",
        "unfurl_links": False,
        "blocks": [
            {
                "type": "header",
                "text": {"type": "plain_text", "text": "✕ npu (L3) turned red", "emoji": False},
            },
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "• 62 % of 40 runs passed in 24 hours\n<https://bot.example/oot/org/npu|Open>",
                    "verbatim": True,
                },
            },
        ],
    }


def test_teams_gets_an_adaptive_card():
    message = body("teams")
    [attachment] = message["attachments"]
    assert (message["type"], attachment["contentType"]) == (
        "message",
        "application/vnd.microsoft.card.adaptive",
    )
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert [block["text"].replace("\u200b", "") for block in card["body"]] == [
        "✕ npu (L3) turned red",
        "62 % of 40 runs passed in 24 hours",
    ]
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Open", "url": "https://bot.example/oot/org/npu"}
    ]


def test_hostile_text_means_nothing():
    slack = body("slack", heading=HOSTILE, lines=[HOSTILE])
    text = slack["blocks"][1]["text"]["text"]
    assert "<!channel>" not in text + slack["text"]
    assert "&lt;!channel&gt;" in text
    assert "*bold*" not in text
    teams = body("teams", heading=HOSTILE, lines=[HOSTILE])
    for block in teams["attachments"][0]["content"]["body"]:
        assert "](" not in block["text"]
        assert "<b>" not in block["text"]
    for kind in ("json", "slack", "teams"):
        sent = body_of(
            notice(heading=HOSTILE, lines=[HOSTILE]), kind=kind, url="https://bot.example"
        ).decode()
        assert "\u202e" not in sent
        assert "\x00" not in sent
        assert "\\u0000" not in sent


def test_long_notices_fit_what_the_chats_take():
    long = {"heading": "h" * 1_000, "lines": ["ü*" * 400 for _ in range(60)]}
    slack = body("slack", **long)
    assert len(slack["blocks"][0]["text"]["text"]) <= 150
    assert len(slack["blocks"][1]["text"]["text"]) <= 3_000
    teams = body_of(notice(**long), kind="teams", url="https://bot.example")
    assert len(teams) <= MOST_TEAMS
    assert "and " in json.loads(teams)["attachments"][0]["content"]["body"][-1]["text"]


def test_the_signature_is_that_of_standard_webhooks():
    """The example of the specification's reference libraries."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    sent = b'{"test": 2432232314}'
    headers = sign_notice(sent, identifier="msg_p5jXN8AQM9LWM0D4loKWxJek", at=1614265330, keys=[key])
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_two_keys_make_two_signatures():
    headers = sign_notice(b"{}", identifier="x", at=1, keys=[b"a" * 24, b"b" * 24])
    expected = [
        "v1," + base64.b64encode(hmac.new(key, b"x.1.{}", hashlib.sha256).digest()).decode()
        for key in (b"a" * 24, b"b" * 24)
    ]
    assert headers["webhook-signature"].split(" ") == expected
    assert "webhook-signature" not in sign_notice(b"{}", identifier="x", at=1, keys=[])
