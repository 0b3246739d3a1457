"""The option that names other CIs: every mistake is named, at once."""

from __future__ import annotations

import asyncio
import json

import pytest

from bot.core.errors import Misconfigured
from bot.core.settings_loading import load
from bot.providers.feature import ProviderSettings, read_providers
from bot.web.handover import LISTENER, WORKER, choose_process, is_delivery
from tests.process import PATIENCE
from tests.providers.conftest import ENVIRON
from tests.providers.sending import (
    BUILDKITE,
    CIRCLECI,
    circleci,
    job_event,
    signed_buildkite,
    signed_circleci,
)
from tests.serving import SQLITE
from tests.web.test_edge import call, gated  # noqa: F401 - `call` is a fixture
from tests.web.test_fast_path import answer_of, by_aiohttp

GOOD = {"kind": "circleci", "projects": {"github/Org/Vision": "org/vision"}}
BASE = {
    "OOTBOT_APP_ID": "1",
    "OOTBOT_WEBHOOK_SECRET": "a webhook secret of ours",
    "OOTBOT_PRIVATE_KEY": "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----",
    "OOTBOT_UPSTREAM_REPO": "org/project",
    "OOTBOT_ALLOWLIST": "allowlist.yml",
}
WRONG = [
    {"kind": "jenkins"},
    GOOD | {"secret_env": "NO_SUCH_SECRET"},
    GOOD | {"secrets_env": "CIRCLECI_SECRET"},
    {"kind": "buildkite", "pipelines": {"fastcheck": "org/project"}},
    {"kind": "buildkite", "pipelines": {"org/a": "project"}, "allow_token": "yes"},
    {"kind": "buildkite"},
    {"kind": "circleci", "secret_env": "SHORT", "projects": {"gh/org/vision": "org/vision"}},
]


def test_a_table_in_the_settings_file_or_json_in_the_environment(tmp_path):
    file = tmp_path / "ootbot.toml"
    file.write_text('[[providers]]\nkind = "circleci"\nprojects = {"github/Org/Vision" = "org/vision"}\n')
    for given in ({}, {"OOTBOT_PROVIDERS": json.dumps([GOOD])}):
        chosen, warnings = load(BASE | ENVIRON | given, file, features=(ProviderSettings,))
        (one,) = chosen.of(ProviderSettings).providers
        assert (one.kind, dict(one.projects), warnings) == ("circleci", {"gh/org/vision": "org/vision"}, [])
        assert ENVIRON["CIRCLECI_SECRET"] not in repr(chosen)


def test_every_mistake_is_named_at_once():
    given = BASE | ENVIRON | {"SHORT": "short", "OOTBOT_PROVIDERS": json.dumps(WRONG)}
    with pytest.raises(Misconfigured) as found:
        load(given, features=(ProviderSettings,))
    said = "\n".join(found.value.problems)
    for words in (
        "entry 1: its kind is one of circleci, buildkite, not 'jenkins'",
        "entry 2 (circleci): the environment variable NO_SUCH_SECRET is missing",
        "entry 3 (circleci): 'secrets_env' is none of kind, projects, secret_env",
        "entry 4 (buildkite): 'fastcheck' is no project: write org/pipeline",
        "entry 5 (buildkite): allow_token is true or false",
        "entry 5 (buildkite): org/a is mapped to 'project': write owner/name",
        "entry 6 (buildkite): write up to 1000 projects",
        "entry 7 (circleci): a secret in SHORT is shorter than 16 characters",
    ):
        assert words in said


def test_a_project_is_mapped_once():
    twice = [GOOD, {"kind": "circleci", "projects": {"gh/org/vision": "org/other"}}]
    with pytest.raises(ValueError, match="gh/org/vision is mapped twice"):
        read_providers(json.dumps(twice), ENVIRON)
    several = {"kind": "buildkite", "pipelines": {"org/a": "org/project", "org/b": "org/project"}}
    (one,) = read_providers(json.dumps([several]), ENVIRON)
    assert one.organizations == {"org"}


@pytest.mark.parametrize("text", ["", "circleci", "{}", '["circleci"]', "[1]"])
def test_what_is_no_list_of_tables_is_refused(text):
    with pytest.raises(ValueError, match="list of tables"):
        read_providers(text, ENVIRON)


def test_mistakes_in_the_options_of_the_api_are_named_at_once():
    entry = {"kind": "buildkite", "pipelines": {"org/a": "org/project"}}
    wrong = [
        entry | {"api_token_env": "NO_SUCH_TOKEN"},
        entry | {"api_token_env": 7},
        entry | {"api_token_env": "TWO_WORDS", "api_url": "http://example.org", "junit": [7]},
        entry | {"junit": "*.xml"},
        {"kind": "circleci", "projects": {"gh/org/vision": "org/vision"}, "api_token_env": "API_TOKEN"},
    ]
    given = BASE | ENVIRON | {"TWO_WORDS": "two words", "OOTBOT_PROVIDERS": json.dumps(wrong)}
    with pytest.raises(Misconfigured) as found:
        load(given, features=(ProviderSettings,))
    said = "\n".join(found.value.problems)
    for words in (
        "entry 1 (buildkite): the environment variable NO_SUCH_TOKEN is missing; it holds the API token",
        "entry 2 (buildkite): api_token_env names an environment variable, such as BUILDKITE_API_TOKEN",
        "entry 3 (buildkite): TWO_WORDS holds no API token",
        "entry 3 (buildkite): api_url: plain http is accepted only to loopback",
        "entry 3 (buildkite): junit is a glob over the paths of artifacts, or a list of up to 20",
        "entry 4 (buildkite): junit needs api_token_env",
        "entry 5 (circleci): 'api_token_env' is none of kind, projects, secret_env",
    ):
        assert words in said


def request(path, event, headers):
    body = json.dumps(event).encode()
    told = {
        "Host": "bot.example",
        "Content-Length": str(len(body)),
        "Content-Type": "application/json",
    } | headers(body)
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


@SQLITE
async def test_an_event_takes_the_fast_path_unless_nothing_follows_from_it(bot, call):  # noqa: F811
    now = bot.clock.now() // 1000

    def buildkite(body):
        return signed_buildkite(body, now) | {"X-Buildkite-Event": "job.finished"}

    def of_circleci(body):
        return signed_circleci(body) | {"circleci-event-type": "job-completed"}

    sent = [
        (request(BUILDKITE, job_event("passed"), buildkite), 202, True),
        (request(CIRCLECI, circleci(), of_circleci), 202, True),
        (request(CIRCLECI, circleci(slug="gh/x/y"), of_circleci), 202, False),
        (request(BUILDKITE, job_event("failed"), lambda body: signed_buildkite(body, now - 400)), 401, False),
        (request("/api/jenkins/webhooks", circleci(), of_circleci), 404, False),
    ]
    async with gated(bot) as port, asyncio.timeout(PATIENCE):
        for raw, status, fast in sent:
            reader, _ = await call(port, raw)
            found, headers, told = await answer_of(reader)
            assert (found, not by_aiohttp(headers)) == (status, fast), told
    await bot.settle()
    assert len(await bot.rows("provider_job")) == 2


def test_events_are_taken_by_the_process_that_listens():
    assert choose_process("POST", BUILDKITE) == choose_process("POST", f"{CIRCLECI}/") == LISTENER
    assert choose_process("POST", "/api/github/webhooks") == LISTENER
    assert choose_process("POST", "/api/github/webhooksx") == WORKER
    assert not is_delivery("/api/a/b/webhooks")
