"""Receivers as the settings have them, and what is sent to them, to feeds and badges."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bot.core.errors import Misconfigured
from bot.core.setting_types import as_text
from bot.core.settings_loading import load
from bot.notify.receivers import DIGEST, TOLD, NotifySettings, Receiver, read_receivers
from bot.notify.sending import BACKOFF, FINAL_STATUSES, MOST_TEAMS, WHOLE_TIMEOUT, body_of, sign_notice
from bot.pages.site.feeds import ATOM_NAMESPACE, draw_badge, make_feed
from tests.harness import L2, L3, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.notify.receiving import SECRET, check, turn_red
from tests.pages.test_private_names import said_to_be

HOSTILE = "<!channel> @everyone [x](https://evil.example) *bold* \u202e\x00`code` & <b>"
NS = {"a": ATOM_NAMESPACE}
PAGE = (Path(__file__).parents[2] / "docs" / "notify.md").read_text()
GOOD = {"name": "team", "url": "https://hooks.example/x", "secret": SECRET}
REQUIRED = {
    "OOTBOT_APP_ID": "1",
    "OOTBOT_WEBHOOK_SECRET": "x" * 16,
    "OOTBOT_PRIVATE_KEY": "-----BEGIN RSA PRIVATE KEY-----\n-----END RSA PRIVATE KEY-----",
    "OOTBOT_UPSTREAM_REPO": "o/r",
    "OOTBOT_ALLOWLIST": "a.yml",
}


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


def made(**options):
    return read_receivers(json.dumps([GOOD | options]))[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "two words"}, "its name is not a word"),
        ({"name": ""}, "its name is not a word"),
        ({"url": "http://hooks.example/x"}, "must begin with https://"),
        ({"url": "ftp://hooks.example/x", "internal": True}, "must begin with https://"),
        ({"secret": ""}, "it has no secret"),
        ({"secret": "hunter2"}, "its secret cannot be read"),
        ({"secret": "whsec_***"}, "its secret cannot be read"),
        ({"secret": "whsec_c2hvcnQ="}, "its secret has the wrong length"),
        ({"format": "slack"}, "slack checks no signature"),
        ({"format": "irc"}, "Invalid enum value 'irc'"),
        ({"events": ["backend_blue"]}, "'backend_blue' is not an event"),
        ({"quiet": "22-7"}, "write two times, as in 22:00-07:00"),
        ({"quiet": "22:00-22:00"}, "write two times"),
        ({"digest": "9"}, "write a time, as in 09:00"),
        ({"time_zone": "Mars/Olympus"}, "is not a known time zone"),
        ({"time_zone": "../../etc/passwd"}, "is not a known time zone"),
        ({"colour": "red"}, "unknown field `colour`"),
    ],
)
def test_a_wrong_receiver_is_named_with_what_to_write(options, why):
    with pytest.raises(ValueError, match=r"receiver|write tables") as caught:
        read_receivers(json.dumps([GOOD | options]))
    assert why in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_two_of_one_name_and_too_many_are_refused():
    with pytest.raises(ValueError, match="its name is taken"):
        read_receivers(json.dumps([GOOD, GOOD]))
    with pytest.raises(ValueError, match="at most 50"):
        read_receivers(json.dumps([GOOD | {"name": f"r{number}"} for number in range(51)]))


def test_tables_of_the_settings_file_are_read_as_the_variable_is(tmp_path):
    file = tmp_path / "ootbot.toml"
    file.write_text(f"""
[[notify]]
name = "team"
url = "https://hooks.example/x"
secret = "{SECRET}"
quiet = "22:00-07:00"
time_zone = "Europe/Berlin"

[[notify]]
name = "chat"
url = "https://hooks.slack.example/services/T/B/x"
format = "slack"
events = ["trunk_broken", "trunk_repaired"]
""")
    settings, warnings = load(REQUIRED, file, features=(NotifySettings,))
    names = [one.name for one in settings.of(NotifySettings).notify]
    assert (names, warnings) == (["team", "chat"], [])
    assert SECRET not in repr(settings)
    assert "services/T/B" not in repr(settings)

    given = REQUIRED | {"OOTBOT_NOTIFY": json.dumps([GOOD | {"quiet": "x"}])}
    with pytest.raises(Misconfigured, match="OOTBOT_NOTIFY is wrong: receiver 1"):
        load(given, features=(NotifySettings,))


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "hours"),
    [
        ("2026-11-25T20:59:59", 0),  # 21:59:59 in Berlin
        ("2026-11-25T21:00:00", 9),
        ("2026-11-26T05:30:00", 0.5),
        ("2026-11-26T06:00:00", 0),
        ("2026-03-28T21:00:00", 8),  # the clock goes forward that night
        ("2026-10-24T20:00:00", 10),  # and back
    ],
)
def test_quiet_hours_are_those_of_the_receiver(now, hours):
    quiet = made(quiet="22:00-07:00", time_zone="Europe/Berlin")
    assert quiet.quiet_seconds(at(now)) == hours * 3_600


def test_quiet_hours_within_a_day():
    quiet = made(quiet="12:00-13:30")
    assert quiet.quiet_seconds(at("2026-11-25T12:30:00")) == 3_600
    assert quiet.quiet_seconds(at("2026-11-25T13:30:00")) == 0


def test_a_digest_is_due_once_its_time_has_come_where_the_receiver_is():
    receiver = made(digest="09:00", time_zone="America/New_York")
    assert receiver.digest_due(at("2026-11-25T13:59:00")) is None
    assert receiver.digest_due(at("2026-11-25T14:05:00")) == ("2026-11-25", 300)
    assert made().digest_due(at("2026-11-25T14:05:00")) is None


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, True),
        ({"events": ["trunk_broken"]}, False),
        ({"repos": ["org/*"]}, True),
        ({"repos": ["other/*"]}, False),
        ({"backends": ["ORG/NPU*"]}, True),
        ({"backends": ["org/tpu"]}, False),
        ({"oncall": ["Alice"]}, True),
        ({"oncall": ["bob"]}, False),
    ],
)
def test_filters(options, wanted):
    about = {"repo": "org/upstream", "backend": "org/npu-1", "oncalls": ["alice"]}
    assert made(**options).wants("backend_red", **about) is wanted


def test_what_is_about_no_backend_passes_no_filter_over_backends_or_people():
    about = {"repo": "org/upstream", "backend": "", "oncalls": []}
    assert made().wants("trunk_broken", **about)
    assert not made(backends=["org/npu"]).wants("trunk_broken", **about)
    assert not made(oncall=["alice"]).wants("trunk_broken", **about)


def test_neither_address_nor_secret_is_shown():
    receiver = Receiver(name="chat", url="https://hooks.slack.example/services/secret", format="slack")
    assert repr(receiver) == "Receiver('chat')"
    assert receiver.host == "hooks.slack.example"
