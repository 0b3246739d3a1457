"""Does everything go through the proxy where there is no other way out? GitHub stands behind one here."""

import contextlib
import os

import aiohttp
import pytest
from aiohttp import web

from bot.core.settings_loading import load
from bot.demo.github import SimulatedGitHub
from tests import forks
from tests.harness import SECRET, UPSTREAM
from tests.process import options_for

UNREACHABLE = "http://127.0.0.1:9"  # but for the proxy


@contextlib.asynccontextmanager
async def proxy(github):
    """A forwarding proxy, which knows where GitHub is; yields its address and the paths it was asked for."""
    asked = []

    async def forward(request):
        asked.append(request.raw_path)
        path = request.raw_path.removeprefix(UNREACHABLE)
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                request.method, github.api_url + path, headers=headers, data=await request.read()
            ) as answer,
        ):
            body = await answer.read()
            kept = {name: answer.headers[name] for name in ("Content-Type", "Date") if name in answer.headers}
            return web.Response(status=answer.status, body=body, headers=kept)

    runner = web.ServerRunner(web.Server(forward))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


async def ootbot(options, folder, *arguments):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {f"OOTBOT_{name}": value for name, value in options.items()}
    process = await forks.ootbot(*arguments, cwd=folder, env=environ)
    return (await process.communicate())[0].decode(), process.returncode


@pytest.fixture
async def github():
    made = SimulatedGitHub()
    await made.start()
    yield made
    await made.stop()


async def test_github_is_reached_through_the_proxy_and_not_without(github, tmp_path, app_key):
    app = github.register_app(webhook_url=None, webhook_secret=SECRET, private_key_pem=app_key)
    github.add_repo(UPSTREAM)
    options = options_for(tmp_path, private_key=app_key, app_id=app.app_id, api_url=UNREACHABLE)
    options |= {"DATA_DIR": str(tmp_path)}
    async with proxy(github) as (address, asked):
        said, code = await ootbot(options | {"PROXY": address}, tmp_path, "redeliver", "--dry-run")
        assert (code, said.splitlines()[-1]) == (0, f"App {app.app_id}: 0 deliveries are missing")
        assert [path.partition("?")[0] for path in asked] == [f"{UNREACHABLE}/app/hook/deliveries"]
        await ootbot(options | {"PROXY": address}, tmp_path, "doctor")
        assert f"{UNREACHABLE}/app" in asked
        said, code = await ootbot(options, tmp_path, "redeliver", "--dry-run")
        assert code == 1, said


@pytest.mark.parametrize(
    "text", ["proxy:3128", "socks5://proxy:1080", "http://proxy:x", "http://proxy/path", "http://a:b@proxy"]
)
def test_a_proxy_that_is_none_is_refused(text, tmp_path, app_key):
    options = options_for(tmp_path, private_key=app_key) | {"PROXY": text}
    with pytest.raises(Exception, match="PROXY"):
        load({f"OOTBOT_{name}": value for name, value in options.items()}, None)


@pytest.mark.parametrize("name", ["ADMIN_TOKEN", "RELAY_TOKEN", "WEBHOOK_SECRET"])
def test_a_secret_that_can_be_guessed_is_refused(name, tmp_path, app_key):
    options = options_for(tmp_path, private_key=app_key) | {name: "hunter2"}
    with pytest.raises(Exception, match=f"{name}.* too short.*openssl rand"):
        load({f"OOTBOT_{name}": value for name, value in options.items()}, None)
