"""What is sent, feeds and badges: nothing from outside means anything in them, and docs/notify.md says it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bot.core.setting_types import as_text
from bot.notify.receivers import DIGEST, TOLD, Receiver, read_receivers
from bot.notify.sending import BACKOFF, FINAL_STATUSES, MOST_TEAMS, WHOLE_TIMEOUT, body_of, sign_notice
from bot.pages.site.feeds import ATOM_NAMESPACE, draw_badge, make_feed
from tests.harness import L2, L3, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.notify.receiving import check
from tests.notify.stories import turn_red
from tests.pages.test_private_names import said_to_be

HOSTILE = "<!channel> @everyone [x](https://evil.example) *bold* \u202e\x00`code` & <b>"
NS = {"a": ATOM_NAMESPACE}
PAGE = (Path(__file__).parents[2] / "docs" / "notify.md").read_text()


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


async def fetch(bot, path, **headers):
    async with bot.http.get(bot.url + path, headers=headers) as answer:
        return answer.status, answer.headers, await answer.text()


def require_atom(text):
    """Check what RFC 4287 demands of a feed."""
    feed = ET.fromstring(text)
    for parent in (feed, *feed.iterfind("a:entry", NS)):
        for name in ("id", "title", "updated"):
            assert len(parent.findall(f"a:{name}", NS)) == 1, name
        assert parent.find("a:link[@rel='alternate']", NS) is not None
    assert feed.find("a:author/a:name", NS) is not None
    assert feed.find("a:link[@rel='self']", NS) is not None
    return feed


@pytest.mark.logic
async def test_a_backends_feed_has_its_notices_and_an_etag(bot):
    await turn_red(bot)
    await check(bot)
    status, headers, text = await fetch(bot, f"/oot/{L3}/feed.atom")

    assert (status, headers["Content-Type"]) == (200, "application/atom+xml; charset=utf-8")
    feed = require_atom(text)
    [entry] = feed.findall("a:entry", NS)
    assert entry.find("a:title", NS).text == "npu (L3) turned red"
    [row] = await bot.rows("notice_told")
    assert entry.find("a:id", NS).text == f"urn:uuid:{row['notice_id']}"
    again = await fetch(bot, f"/oot/{L3}/feed.atom", **{"If-None-Match": headers["ETag"]})
    assert (again[0], again[2]) == (304, "")
    assert require_atom((await fetch(bot, f"/oot/{L2}/feed.atom"))[2]).findall("a:entry", NS) == []
    assert (await fetch(bot, "/oot/no/body/feed.atom"))[0] == 404
    assert (await fetch(bot, "/oot/no/backend/feed.atom"))[0] == 404


@pytest.mark.logic
async def test_a_branch_has_a_feed_and_a_badge(bot):
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=10), job(bot, "lint", "B"))
    for query in ("", "?branch=main"):
        status, _, text = await fetch(bot, f"/{UPSTREAM}/feed.atom{query}")
        assert status == 200
        assert require_atom(text).find("a:title", NS).text == f"main of {UPSTREAM}"
        status, headers, text = await fetch(bot, f"/{UPSTREAM}/badge.svg{query}")
        assert (status, headers["Content-Type"]) == (200, "image/svg+xml; charset=utf-8")
        assert headers["Cache-Control"] == "public, max-age=60"
        assert "main: green" in text
    assert (await fetch(bot, f"/{UPSTREAM}/feed.atom?branch=none"))[0] == 404
    assert ">unknown<" in (await fetch(bot, f"/{UPSTREAM}/badge.svg?branch=none"))[2]


async def test_a_backends_badge_says_its_pass_rate(bot, github):
    await turn_red(bot)
    _, headers, text = await fetch(bot, f"/oot/{L3}/badge.svg")
    assert "npu L3: 75 % in 30 d" in text
    assert (await fetch(bot, f"/oot/{L3}/badge.svg", **{"If-None-Match": headers["ETag"]}))[0] == 304
    ET.fromstring(text)

    unknown = (await fetch(bot, "/oot/nobody/knows/badge.svg"))[2]
    assert "unknown" in unknown
    await said_to_be(bot, github, L3, private=True)
    token = {"Authorization": f"Bearer {bot.context.settings.admin_token}"}
    assert (await fetch(bot, f"/oot/{L3}/badge.svg"))[2] == unknown
    assert (await fetch(bot, f"/oot/{L3}/badge.svg", **token))[2] == unknown


@pytest.mark.logic
async def test_where_upstream_is_private_everything_is_unknown(bot, github):
    await deliver(bot, push(bot, "A"), job(bot, "lint", "A"))
    await said_to_be(bot, github, UPSTREAM, private=True)
    assert "unknown" in (await fetch(bot, f"/{UPSTREAM}/badge.svg"))[2]
    assert "unknown" in (await fetch(bot, f"/oot/{L3}/badge.svg"))[2]
    assert (await fetch(bot, f"/{UPSTREAM}/feed.atom"))[0] == 404


def test_hostile_words_break_neither_feed_nor_badge():
    text = HOSTILE + "</title>\ufffe\ud800"
    feed = require_atom(make_feed([notice(heading=text, lines=[text])], title=text, url="https://bot.example",
                                  address="/a?b=c&d", page="/x"))  # fmt: skip
    assert "</title>" in feed.find("a:title", NS).text
    ET.fromstring(draw_badge(HOSTILE, '"><script>', "bad"))


def section(heading):
    """The part of the page below a heading."""
    return re.search(rf"^##+ {heading}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def first_cells(text):
    return re.findall(r"^\| `([a-z_-]+)` \|", text, re.MULTILINE)


def test_every_key_and_event_is_there():
    assert set(first_cells(section("Receivers"))) == set(Receiver.__struct_fields__)
    assert set(first_cells(section("Events"))) == {*TOLD, DIGEST}


def test_the_example_is_valid():
    given = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    assert [one.name for one in read_receivers(as_text(given["notify"]))] == ["npu-team", "dashboard"]


def test_the_json_is_what_is_sent():
    shown = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    sent = json.loads(
        body_of(
            notice(id=shown["id"], lines=shown["data"]["lines"]),
            kind="json",
            url="https://ootbot.example.org",
        )
    )
    assert sent == shown


def test_headers_and_waits_are_those_of_the_code():
    headers = sign_notice(b"{}", identifier="x", at=1, keys=[b"k" * 24])
    assert set(first_cells(section("Signatures"))) == set(headers)
    waits = section("Delivery")
    assert f"within {WHOLE_TIMEOUT} s" in waits
    assert "5 s, 30 s, 2 min, 5 min, 10 min, 30 min, then every hour" in waits
    assert BACKOFF == (5, 30, 120, 300, 600, 1_800, 3_600)
    assert f"answers {', '.join(map(str, sorted(FINAL_STATUSES)[:-1]))} or {max(FINAL_STATUSES)}" in waits
