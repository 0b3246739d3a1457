"""Receivers as the settings have them: wrong ones are named, quiet hours and filters hold, whatever clocks do."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from bot.core.errors import Misconfigured
from bot.core.settings_loading import load
from bot.notify.receivers import NotifySettings, Receiver, read_receivers
from tests.notify.receiving import SECRET

GOOD = {"name": "team", "url": "https://hooks.example/x", "secret": SECRET}


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


REQUIRED = {
    "OOTBOT_APP_ID": "1",
    "OOTBOT_WEBHOOK_SECRET": "x" * 16,
    "OOTBOT_PRIVATE_KEY": "-----BEGIN RSA PRIVATE KEY-----\n-----END RSA PRIVATE KEY-----",
    "OOTBOT_UPSTREAM_REPO": "o/r",
    "OOTBOT_ALLOWLIST": "a.yml",
}


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
