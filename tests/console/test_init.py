"""`ootbot init`: from the printed address to an App, its key and settings that the bot starts with."""

import asyncio
import contextlib
import json
import os
import re
import stat
import tomllib
from pathlib import Path

import pytest

from bot.core import settings_loading
from bot.core.escaping import web_url
from bot.demo.github import SimulatedGitHub
from bot.demo.github.registration import manifest_problems
from bot.github import manifest
from bot.ops.registration_files import issuer_of
from tests import forks
from tests.browser_of_pages import Visitor
from tests.process import PATIENCE

ROOT = Path(__file__).parents[2]
SECRETS = ("PRIVATE KEY", "client_secret", "webhook_secret")


@pytest.fixture
async def github():
    made = SimulatedGitHub()
    await made.start()
    for name in ("example-org/project", "backends/npu"):
        made.add_repo(name)
    yield made
    await made.stop()


class Init:
    """A running `ootbot init` and what it said."""

    def __init__(self, process):
        self._process = process
        self.said = ""

    async def address(self):
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/setup/\S+", self.said)):
            line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
            assert line, self.said
            self.said += line.decode()
        return found[0]

    async def ended(self):
        rest = await asyncio.wait_for(self._process.stdout.read(), PATIENCE)
        self.said += rest.decode()
        return await self._process.wait()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


@contextlib.asynccontextmanager
async def init(github, folder, *options, public_url="https://ootbot.example.org"):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    process = await forks.ootbot(
        *("init", "--folder", str(folder), "--github-api-url", github.api_url),
        *("--upstream", "example-org/project", "--public-url", public_url, *options),
        cwd=ROOT,
        env=environ,
    )
    running = Init(process)
    try:
        yield running
    finally:
        running.kill()
        await process.wait()


async def register(visitor, page):
    """Press Register, then GitHub's own button; returns where that leads."""
    return await visitor.press(await visitor.press(page))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_one_app_is_registered_and_its_settings_are_ready(github, tmp_path):
    async with init(github, tmp_path, "--organization", "example-org") as running, Visitor() as visitor:
        first = await visitor.open(await running.address())
        assert first.status == 200
        for permission in manifest.manifest_for("one").permissions:
            assert permission.reason.split("`")[0].split("'")[0] in first.text
        confirm = await visitor.press(first)
        assert "Create GitHub App for example-org" in confirm.text
        last = await visitor.press(confirm)
        assert "Registered" in last.text
        assert await running.ended() == 0
        for said in (last.text, running.said):  # what to do next
            assert "/installations/new" in said
            assert str(tmp_path / "allowlist.yml") in said
            assert str(tmp_path / "ootbot.toml") in said
    app = next(app for app in github.state.apps.values() if app.slug == "ootbot-example-org")
    assert app.permissions == manifest.manifest_for("one").granted
    assert app.webhook_url == "https://ootbot.example.org/api/github/webhooks"
    for path in (tmp_path / "ootbot.pem", tmp_path / "ootbot.toml"):
        assert mode(path) == 0o600
    loaded, warnings = settings_loading.load({}, tmp_path / "ootbot.toml")
    assert warnings == []
    assert loaded.app_id == app.app_id
    assert loaded.private_key == app.private_key_pem
    assert loaded.webhook_secret == (app.webhook_secret,)
    assert loaded.upstream_repo == ("example-org/project",)
    assert loaded.admin_token
    assert Path(loaded.allowlist).read_text().endswith("L1: []\n")
    for text in (first.text, confirm.text, last.text, running.said):
        assert app.webhook_secret not in text
        assert "PRIVATE KEY" not in text
        assert loaded.admin_token not in text


async def test_two_apps_upstream_grants_nothing_that_writes_code(github, tmp_path):
    async with init(github, tmp_path, "--two-apps", "--workflow-dispatch") as running, Visitor() as visitor:
        second = await register(visitor, await visitor.open(await running.address()))
        assert "2 of 2" in second.text
        last = await register(visitor, second)
        assert len([link for link in last.links if link.endswith("/installations/new")]) == 2
        assert await running.ended() == 0
    upstream, relay = (app for app in github.state.apps.values() if app.slug.startswith("ootbot-"))
    assert upstream.permissions["contents"] == upstream.permissions["actions"] == "read"
    assert relay.permissions == {"metadata": "read", "contents": "read", "actions": "write"}
    loaded, _ = settings_loading.load({}, tmp_path / "ootbot.toml")
    assert (loaded.app_id, loaded.relay_app_id) == (upstream.app_id, relay.app_id)
    assert loaded.relay_private_key == relay.private_key_pem
    assert loaded.relay_webhook_secret == (relay.webhook_secret,)
    assert mode(tmp_path / "ootbot-relay.pem") == 0o600


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ("--two-apps", True),
        ("--two-apps --organization backends", True),
        ("--two-apps --organization Example-Org", False),
        ("--private", True),
        ("", False),
    ],
)
async def test_it_warns_of_an_app_that_upstream_cannot_install(github, tmp_path, options, warned):
    async with init(github, tmp_path, *options.split()) as running:
        await running.address()
    assert ("warning: only its owner can install" in running.said) is warned
    assert ("--organization example-org" in running.said) is warned


async def test_an_interrupted_registration_of_two_goes_on_with_the_second(github, tmp_path):
    async with init(github, tmp_path, "--two-apps") as running, Visitor() as visitor:
        await register(visitor, await visitor.open(await running.address()))
    assert settings_loading.load({}, tmp_path / "ootbot.toml")[0].relay_app_id is None
    async with init(github, tmp_path, "--two-apps") as running, Visitor() as visitor:
        await register(visitor, await visitor.open(await running.address()))
        assert await running.ended() == 0
    assert settings_loading.load({}, tmp_path / "ootbot.toml")[0].relay_app_id


async def test_what_is_there_is_never_replaced(github, tmp_path):
    (tmp_path / "ootbot.pem").write_text("a key")
    async with init(github, tmp_path) as running:
        assert await running.ended() == 2
    assert "is there already" in running.said
    assert (tmp_path / "ootbot.pem").read_text() == "a key"


async def test_a_folder_that_cannot_be_written_is_told_before_anything_is_registered(github, tmp_path):
    (tmp_path / "file").write_text("")
    async with init(github, tmp_path / "file" / "folder") as running:
        assert await running.ended() == 2
    assert "cannot be written (Not a directory): make it yours first" in running.said


async def test_the_address_works_once_and_only_with_its_token(github, tmp_path):
    async with init(github, tmp_path) as running, Visitor() as visitor, Visitor() as other:
        address = await running.address()
        base = address.partition("/setup/")[0]
        assert (await other.open(base + "/")).status == 403
        assert (await other.open(base + "/setup/wrong")).status == 403
        assert (await other.open(base + "/created?code=abc&state=")).status == 403
        assert (await visitor.open(address)).status == 200
        assert (await other.open(address)).status == 403
        assert (await visitor.open(base + "/")).status == 200
        assert (await visitor.open(base + "/", headers={"Host": "evil.example"})).status == 403


async def test_an_answer_with_a_foreign_state_or_code_makes_nothing(github, tmp_path):
    async with init(github, tmp_path) as running, Visitor() as visitor:
        address = await running.address()
        base = address.partition("/setup/")[0]
        page = await visitor.open(address)
        assert "form-action " + github.url in page.headers["Content-Security-Policy"]
        assert (await visitor.open(base + "/created?code=abc&state=wrong")).status == 403
        state = page.forms[0]["action"].partition("state=")[2]
        refused = await visitor.open(f"{base}/created?code=abc&state={state}")
        assert "the code is used, older than an hour" in refused.text
        assert not (tmp_path / "ootbot.toml").exists()
        github.faults.add(method="POST", path="conversions", status=500)
        away = await register(visitor, refused)
        assert away.status == 503
        assert "Registered" in (await visitor.open(away.url)).text


async def test_the_environment_file_holds_the_same(github, tmp_path):
    async with init(github, tmp_path, "--env", "--private") as running, Visitor() as visitor:
        page = await visitor.open(await running.address())
        assert json.loads(dict(page.forms[0]["fields"])["manifest"])["public"] is False
        await register(visitor, page)
        assert await running.ended() == 0
    lines = (tmp_path / "ootbot.env").read_text().splitlines()
    loaded, warnings = settings_loading.load(dict(line.split("=", 1) for line in lines))
    assert warnings == []
    assert loaded.private_key.startswith("-----BEGIN")


@pytest.mark.parametrize("role", ["one", "upstream", "relay"])
@pytest.mark.parametrize("workflow_dispatch", [False, True])
def test_github_takes_every_manifest(role, workflow_dispatch):
    found = manifest.manifest_for(role, workflow_dispatch=workflow_dispatch)
    sent = found.as_sent(name="x", public_url="https://a.example", redirect_url="http://127.0.0.1:1/created")
    assert manifest_problems(sent, set()) == []
    assert manifest.lacks(found.granted, manifest.manifest_for("one").granted) == []


def test_every_permission_the_code_uses_is_asked_for():
    """`context.github.client(repo, checks="write")` needs that permission in app.yml, the relay's in app.relay.yml."""
    used = re.compile(
        r"context\.(github|backend_github)\.(?:client|caching|low_priority)\(.*?, (\w+)=\"(\w+)\""
    )
    roles = {"github": "upstream", "backend_github": "relay"}
    # searches in upstream's own CI, and answers in issues that are no pull requests: the App goes on without them
    optional = {"steps.py", "comment_commands.py"}
    found = 0
    for path in (ROOT / "bot").rglob("*.py"):
        for app, name, level in used.findall(path.read_text()) if path.name not in optional else ():
            found += 1
            assert manifest.lacks({name: level}, manifest.manifest_for(roles[app]).granted) == [], path.name
    assert found > 8


@pytest.mark.parametrize(
    ("api", "pages", "issuer"),
    [
        ("https://api.github.com", "https://github.com", None),
        (
            "https://git.example.org/api/v3",
            "https://git.example.org",
            "https://git.example.org/_services/token",
        ),
        (
            "https://api.example.org/api/v3",
            "https://api.example.org",
            "https://api.example.org/_services/token",
        ),
        ("https://api.acme.ghe.com", "https://acme.ghe.com", "https://token.actions.acme.ghe.com"),
    ],
)
def test_every_kind_of_github_is_known(api, pages, issuer):
    assert web_url(api) == pages
    assert issuer_of(api) == issuer


def test_the_manifests_are_yaml_and_shipped():
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    for name in manifest.FILES.values():
        assert included["force-include"][name] == f"bot/_config/{name}"
        assert (ROOT / name).is_file()


async def test_an_app_of_an_enterprise_server_asks_for_no_event_that_it_does_not_know(github, tmp_path):
    github.state.server_version = "3.19.4"
    async with init(github, tmp_path, "--organization", "example-org") as running, Visitor() as visitor:
        confirm = await visitor.press(await visitor.open(await running.address()))
        await visitor.press(confirm)
        assert await running.ended() == 0
    app = next(app for app in github.state.apps.values() if app.slug == "ootbot-example-org")
    assert "merge_group" not in app.events
    assert "merge_queues" not in app.permissions
