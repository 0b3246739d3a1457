"""What is wrong with the machine or the settings is seen: a full disk, a wrong key, addresses that lead nowhere."""

import os
import socket

import aiohttp
import pytest

from bot.core import files
from bot.demo.github.auth import private_key
from tests import forks
from tests.harness import make_settings, running
from tests.ops.test_admin_pages import get, sign_in
from tests.process import ROOT, free_port, options_for


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as trial:
            trial.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
async def browser():
    """A browser: it keeps cookies."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


@pytest.mark.logic
@pytest.mark.parametrize(("free", "status"), [("LITTLE", 200), ("TOO_LITTLE", 503)])
async def test_a_disk_that_is_nearly_full_is_told_to_the_administrator(
    bot, browser, monkeypatch, free, status
):
    await sign_in(bot, browser)
    for address in ("/hud", "/admin"):
        assert "free on the disk of DATA_DIR" not in await get(bot, browser, address)
    for limit in ("LITTLE", free):
        monkeypatch.setattr(files, limit, 2**62)
    code, ready = await bot.get("/readyz")
    assert code == status
    (said,) = ready["missing"] if status == 503 else ready["notes"]
    assert said.startswith("disk: ")
    for address in ("/hud", "/oot", "/admin"):
        assert "free on the disk of DATA_DIR" in await get(bot, browser, address)
    _, page = await bot.get("/hud")
    assert "free on the disk of DATA_DIR" not in page
    _, metrics = await bot.get("/metrics")
    assert "ootbot_disk_free_bytes{database=" in metrics


@pytest.mark.logic
@pytest.mark.parametrize("wrong", ["key", "id"])
async def test_a_wrong_key_or_id_of_the_app_makes_the_bot_not_ready(
    github, issuer, clock, tmp_path, database_url, wrong
):
    changed = {"private_key": private_key()} if wrong == "key" else {"app_id": 999_999}
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url, **changed
    )
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await bot.worker.step()
        status, ready = await bot.get("/readyz")
        assert status == 503
        assert any("GitHub does not accept the App's key" in one for one in ready["missing"])


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.logic
async def test_links_of_a_bot_on_an_ipv6_address_have_brackets(github, issuer, clock, tmp_path, database_url):
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url, host="::1"
    )  # fmt: skip
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        _, document = await bot.get("/api/openapi.json")
        assert document["servers"][0]["url"].startswith("http://[::1]:")


@pytest.mark.parametrize(
    "address", ["https://example.org/ootbot", "https://example.org/?a=b", "https://example.org/#x"]
)
def test_a_public_url_with_more_than_a_host_is_refused(tmp_path, app_key, address):
    options = options_for(tmp_path, private_key=app_key) | {"PORT": str(free_port()), "PUBLIC_URL": address}
    environ = os.environ | {f"OOTBOT_{name}": value for name, value in options.items()}
    code, _, err = forks.ended("serve", cwd=ROOT, env=environ)
    assert code == 2
    assert "the bot needs a host name of its own, as in https://example.org" in err
