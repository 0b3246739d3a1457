"""The option that names other CIs, and what their endpoints refuse or ignore."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace

import pytest

from bot.app import make_app
from bot.core.errors import Misconfigured
from bot.core.settings_loading import load
from bot.providers.admission import verify_buildkite, verify_circleci
from bot.providers.feature import ProviderSettings, read_providers
from bot.web.handover import LISTENER, WORKER, choose_process, is_delivery
from bot.web.limits import IGNORED_MOST
from tests.harness import UPSTREAM
from tests.process import PATIENCE
from tests.providers.conftest import ENVIRON
from tests.providers.sending import (
    BUILDKITE,
    CIRCLECI,
    PIPELINE,
    SECRET,
    TOKEN,
    agent_event,
    circleci,
    job_event,
    send_buildkite,
    send_circleci,
    signed_buildkite,
    signed_circleci,
)
from tests.serving import SQLITE, converse, request_head, serving
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
BODY = json.dumps(circleci()).encode()
VECTORS = {  # of CircleCI's documents
    ("secret", b"foo"): "773ba44693c7553d6ee20f61ea5d2757a9a4f4a44d2841ae4e95b52e4cd62db4",
    ("secret", b"hello world"): "734cc62f32841568f45715aeb9f4d7891324e6d948e4c6c60c0621cdac48623a",
    ("another-secret", b"lalala"): "daa220016c8f29a8b214fbfc3671aeec2145cfb1e6790184ffb38b6d0425fa00",
    (
        "hunter123",
        b"an-important-request-payload",
    ): "9be2242094a9a8c00c64306f382a7f9d691de910b4a266f67bd314ef18ac49fa",
}
REFUSED = {
    "no signature": (send_circleci, {"headers": {"circleci-signature": None}}, 401, "invalid_signature", "missing"),
    "v0 only": (send_circleci, {"headers": {"circleci-signature": "v0=" + "a" * 64}}, 401, "invalid_signature", "match"),
    "another secret": (send_circleci, {"secret": "a guess of theirs"}, 401, "invalid_signature", "secret"),
    "beyond ASCII": (send_circleci, {"headers": {"circleci-signature": "v1=ééé"}}, 401, "invalid_signature", "match"),
    "no body": (send_circleci, {"body": b""}, 400, "invalid_body", "JSON"),
    "no JSON, as in a sample of theirs": (send_circleci, {"body": BODY[:-1] + b",}"}, 400, "invalid_body", "JSON"),
    "a list": (send_circleci, {"body": b"[]"}, 400, "invalid_body", "object"),
    "bytes that are no text": (send_circleci, {"body": b'{"id":"\xff"}'}, 400, "invalid_body", "body"),
    "100,000 lists": (send_circleci, {"body": b'{"a":' + b"[" * 100_000}, 400, "invalid_body", ""),
    "no id": (send_circleci, {"event": circleci() | {"id": None}}, 400, "invalid_body", "id"),
    "an id of markup": (send_circleci, {"event": circleci() | {"id": "<script>"}}, 400, "invalid_body", "id"),
    "no job id": (send_circleci, {"event": circleci() | {"job": {}}}, 400, "invalid_body", "job.id"),
    "a job that is a text": (send_circleci, {"event": circleci() | {"job": "test"}}, 400, "invalid_body", "job"),
    "no project": (send_circleci, {"event": circleci() | {"project": None}}, 400, "invalid_body", "project.slug"),
    "gzip": (send_circleci, {"body": gzip.compress(BODY), "headers": {"Content-Encoding": "gzip"}}, 415, "unsupported_encoding", ""),
    "3 MiB": (send_circleci, {"body": BODY + b" " * 3 * 2**20}, 413, "body_too_large", "2 MiB"),
    "an old signature": (send_buildkite, {"at": 1_790_000_000 - 301}, 401, "invalid_signature", "clock"),
    "one of the future": (send_buildkite, {"at": 1_790_000_000 + 301}, 401, "invalid_signature", "clock"),
    "a token in plain text": (send_buildkite, {"headers": {"X-Buildkite-Signature": None, "X-Buildkite-Token": "a token of Buildkite"}}, 401, "invalid_signature", "sign"),
    "no job": (send_buildkite, {"event": job_event() | {"job": None}}, 400, "invalid_body", "job.id"),
    "no build": (send_buildkite, {"event": job_event() | {"build": {}}}, 400, "invalid_body", "build.web_url"),
    "no agent": (send_buildkite, {"event": agent_event("lost") | {"agent": {}}}, 400, "invalid_body", "agent.id"),
}  # fmt: skip
IGNORED = {
    "a test of CircleCI": (send_circleci, {"type": "test"}, "test", "ignored"),
    "an event that CircleCI may get": (send_circleci, circleci() | {"type": "job-started", "job": None}, "job-started", "ignored"),
    "another project": (send_circleci, circleci(slug="gh/x/y"), "unknown project gh/x/y", "foreign"),
    "a ping of Buildkite": (send_buildkite, {"event": "ping", "organization": {"id": "1"}}, "ping", "ignored"),
    "an event of tokens": (send_buildkite, {"event": "cluster_token.registration_blocked"}, "cluster_token", "ignored"),
    "another pipeline": (send_buildkite, job_event(slug="release"), "unknown project pytorch/release", "foreign"),
    "another organization": (send_buildkite, agent_event("lost", organization="evil"), "unknown organization evil", "foreign"),
}  # fmt: skip


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


@pytest.mark.parametrize(("secret", "body"), VECTORS)
def test_signatures_are_those_of_circlecis_documents(secret, body):
    digest = VECTORS[secret, body]
    assert verify_circleci(f"v0=00, v1=zz,v1={digest},v2={digest}", body, ["x", secret]) == [secret]
    assert verify_circleci(f"v0={digest}", body, [secret]) == []
    assert verify_circleci(digest, body, [secret]) == []
    assert verify_circleci(f"v1={digest}", body + b" ", [secret]) == []


def test_signatures_are_those_of_buildkites_documents():
    digest = "0c39cc0125277a2be2e1226449203a9ffda9c515f046ecad25cbeee93dbd6064"
    header, body = f"timestamp=1790000000,signature={digest}", b'{"event":"job.finished"}'
    token = "tokentokentoken16"
    for now, good in (
        (1_790_000_000, True),
        (1_790_000_300, True),
        (1_789_999_699, False),
        (1_790_000_301, False),
    ):
        assert verify_buildkite(header, body, [token], now=now) == ([token] if good else []), now
    for odd in (
        "",
        digest,
        f"signature={digest}",
        header.replace("timestamp", "time"),
        header.upper(),
        f"{header},",
    ):
        assert verify_buildkite(odd, body, [token], now=1_790_000_000) == [], odd


@SQLITE
async def test_bad_events_are_refused_with_a_reason_and_leave_no_trace(bot):
    wrong = {}
    for name, (send, differing, status, code, word) in REFUSED.items():
        sent = {"event": circleci() if send is send_circleci else job_event()} | differing
        answer = await send(bot, sent.pop("event"), **sent)
        expected = {"ok": False, "error": code, "detail": answer[1].get("detail")}
        if answer != (status, expected) or word not in answer[1]["detail"]:
            wrong[name] = answer
    assert wrong == {}
    assert await bot.rows("delivery") == []


@SQLITE
async def test_nobody_delivers_where_no_other_ci_is_in_the_settings(closed):
    for send, event in ((send_circleci, circleci()), (send_buildkite, job_event())):
        status, answer = await send(closed, event)
        assert (status, answer["error"]) == (404, "not_found")
        assert "docs/providers.md" in answer["detail"]


@SQLITE
async def test_what_nothing_follows_from_is_stored_and_says_why(bot):
    states = []
    for name, (send, event, words, state) in IGNORED.items():
        status, answer = await send(bot, event)
        assert status == 202, name
        assert words in answer["ignored"], name
        states.append(state)
    await bot.settle()
    rows = await bot.rows("delivery")
    assert [row["state"] for row in sorted(rows, key=lambda row: row["id"])] == states
    for table in ("provider_job", "provider_run", "provider_agent"):
        assert await bot.rows(table) == []


@SQLITE
async def test_a_provider_names_no_repository_that_is_not_mapped_to_it(bot):
    theirs = {"repository": {"id": 7, "full_name": UPSTREAM, "private": False}}
    await send_circleci(bot, circleci() | theirs)
    await bot.settle()
    (row,) = await bot.rows("provider_job")
    assert (row["repo"], row["repository_id"]) == (UPSTREAM, bot.github.state.repo(UPSTREAM).id)
    pins = {one["name"]: one["repository_id"] for one in await bot.rows("pinned_repository")}
    assert pins[UPSTREAM] == bot.github.state.repo(UPSTREAM).id


@SQLITE
async def test_nul_and_deep_nesting_harm_nothing(bot):
    deep = json.loads("[" * 100 + "]" * 100)
    events = [
        circleci(job="te\x00st", number=1) | {"more": deep},
        circleci(job="\ud800 half", number=2),
        circleci(job="x" * 100_000, number=3),
    ]
    for event in events:
        assert (await send_circleci(bot, event))[0] in {202, 400}
    assert (await send_buildkite(bot, job_event("passed", name="<script>alert(1)</script>")))[0] == 202
    await bot.settle()
    names = {row["job_name"] for row in await bot.rows("provider_job")}
    assert {"test", "<script>alert(1)</script>"} <= names
    assert max(map(len, names)) <= 500
    assert {row["state"] for row in await bot.rows("delivery")} == {"handled"}


@SQLITE
async def test_odd_texts_in_what_tells_events_apart_are_taken(bot):
    events = [job_event(job=f"j-{number}") for number in range(3)]
    events[0]["job"]["exit_status"] = "\ud800"
    events[1]["job"]["exit_status"] = json.loads("[" * 400 + "]" * 400)
    events[2]["job"]["exit_status"] = 10**400
    for event in events:
        assert (await send_buildkite(bot, event))[0] in {202, 400}
    await bot.settle()
    assert {row["exit_status"] for row in await bot.rows("provider_job")} <= {None}


@SQLITE
async def test_events_that_nothing_follows_from_are_limited_and_others_are_not(bot):
    raw = json.dumps(circleci(slug="gh/x/y")).encode()
    headers = {"circleci-event-type": "job-completed"} | signed_circleci(raw, SECRET)
    for _ in range(IGNORED_MOST):
        await bot.request("POST", CIRCLECI, data=raw, headers=headers)
    status, answer = await bot.request("POST", CIRCLECI, data=raw, headers=headers)
    assert (status, answer["error"]) == (429, "rate_limited")
    assert "unknown project gh/x/y" in answer["detail"]
    assert (await send_circleci(bot, circleci()))[0] == 202


@SQLITE
async def test_a_job_that_calls_itself_a_workflow_is_taken_for_what_it_is(bot):
    assert (await send_circleci(bot, circleci() | {"type": "workflow-completed"}))[0] == 202
    await bot.settle()
    assert len(await bot.rows("provider_job")) == 1


@SQLITE
async def test_a_body_that_comes_too_slowly_is_cut_off(bot):
    async with serving(bot, make_app(bot.context, body_seconds=0.3)) as served:
        sent = {"Content-Length": str(len(BODY))} | signed_circleci(BODY)
        sent = {name: value.encode() for name, value in sent.items()}
        drops = [BODY[at : at + 1] for at in range(len(BODY))]
        status, answer = await converse(served.url, request_head("POST", CIRCLECI, sent), *drops, pause=0.02)
        assert (status, answer["error"]) == (408, "body_timeout")
    assert await bot.rows("delivery") == []


@SQLITE
async def test_what_cannot_be_stored_is_said_and_may_be_sent_again(bot, settings):
    spool = settings.data_dir / "ootbot.db.spool"
    await bot.settle()
    spool.unlink(missing_ok=True)
    spool.mkdir()
    for send, event in ((send_circleci, circleci()), (send_buildkite, job_event())):
        status, answer = await send(bot, event)
        assert (status, answer["error"]) == (503, "store_unavailable")
    spool.rmdir()
    assert (await send_circleci(bot, circleci()))[0] == 202
    assert (await send_buildkite(bot, job_event()))[0] == 202


class TestPlainToken:
    @pytest.fixture
    def settings(self, settings):
        entry = {"kind": "buildkite", "pipelines": {PIPELINE: UPSTREAM}, "allow_token": True}
        chosen = ProviderSettings(providers=read_providers(json.dumps([entry]), ENVIRON))
        return replace(settings, of_features={**settings.of_features, ProviderSettings: chosen})

    @SQLITE
    async def test_buildkites_token_is_taken_in_place_of_a_signature_where_its_entry_allows_that(self, bot):
        for number, (token, expected) in enumerate(
            ((TOKEN, 202), (TOKEN[:-1], 401), ("", 401), ("ééé", 401))
        ):
            headers = {"X-Buildkite-Signature": None, "X-Buildkite-Token": token}
            answer = await send_buildkite(bot, job_event(job=f"j-{number}"), headers=headers)
            assert answer[0] == expected, token
        assert (await send_buildkite(bot, job_event(job="signed")))[0] == 202
