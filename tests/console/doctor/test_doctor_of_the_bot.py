"""ootbot doctor: what it says of the bot itself: its address, clock, database, allowlist and keys."""

import asyncio
import sqlite3
import stat

import pytest
from aiohttp import web

from tests.console.doctor.examined import doctor, errors
from tests.harness import UPSTREAM
from tests.process import PATIENCE, options_for, until


async def test_what_readyz_keeps_from_strangers_is_told_to_doctor(serving, github, tmp_path):
    serving.kill()
    await serving.ended()
    (tmp_path / "allowlist.yml").write_text("L5: [secret/backend]\n")
    await asyncio.wait_for((await serving.start()).wait(), PATIENCE)
    repo = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
    repo["updated_at"] = "2099-01-01T00:00:00Z"
    await github.deliver("repository", {"action": "privatized", "repository": repo})
    await until(
        lambda: serving.rows("SELECT * FROM repository WHERE private"), what="the repository to be private"
    )
    _, found, _ = await doctor(serving.options, tmp_path)
    assert "`L5` is no level" in found["server"][0]["detail"]
    _, found, _ = await doctor(serving.options | {"ADMIN_TOKEN": ""}, tmp_path)
    assert "L5" not in found["server"][0]["detail"]
    assert "`ootbot doctor`" in found["server"][0]["detail"]


async def test_a_bot_that_does_not_run(serving, github, tmp_path):
    serving.kill()
    await serving.ended()
    await github.open_pull(UPSTREAM)
    app = f"App {github.app.app_id}"
    _, found, _ = await doctor(serving.options, tmp_path)
    assert errors(found) == {"server", f"{app} secret", f"{app} delivery log"}
    assert "failed to connect" in found[f"{app} delivery log"][0]["detail"]


async def test_a_database_that_could_not_be_used_is_not_taken_for_an_address_nobody_reaches(
    serving, github, tmp_path
):
    swept = "SELECT * FROM sweep WHERE name = 'redeliver' AND finished_at IS NOT NULL"
    await until(lambda: serving.rows(swept), what="the first sweep")
    await asyncio.sleep(1)  # the log's times have seconds
    in_the_way = tmp_path / "ootbot.db.spool"
    await until(lambda: not in_the_way.exists(), what="a spool that was moved")
    in_the_way.mkdir()
    await github.open_pull(UPSTREAM)
    in_the_way.rmdir()
    _, found, _ = await doctor(serving.options, tmp_path)
    (finding,) = found[f"App {github.app.app_id} delivery log"]
    assert "503" in finding["detail"]
    assert finding["next"].startswith("see the database lines above")


@pytest.mark.parametrize(("status", "verdict"), [(403, "warning"), (404, "error")])
async def test_a_proxy_that_keeps_readyz_inside(serving, tmp_path, status, verdict):
    async def answer(_request):
        return web.Response(status=status, text="no")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    outside = {"PUBLIC_URL": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    _, found, _ = await doctor(serving.options | outside, tmp_path)
    await runner.cleanup()
    assert [check["status"] for check in found["server"]] == [verdict]


async def test_a_clock_that_is_wrong_and_an_app_that_is_not_known(serving, github, tmp_path):
    github.faults.add(path="^/app$", status=401, headers={"Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, times=2)
    code, found, _ = await doctor(serving.options, tmp_path)
    assert code == 1
    assert errors(found) == {"clock", f"App {github.app.app_id}"}
    assert "ahead of GitHub's" in found["clock"][0]["detail"]
    _, found, _ = await doctor(serving.options | {"APP_ID": "999"}, tmp_path)
    assert errors(found) == {"App 999"}


async def test_a_database_of_another_version_or_that_cannot_be_written(serving, tmp_path):
    serving.kill()
    await serving.ended()
    file = tmp_path / "ootbot.db"
    for version, oldest, status in (
        ("9999", "0001", "warning"),
        ("9999", "9999", "error"),
        ("0000", "0001", "warning"),
    ):
        with sqlite3.connect(file) as db:
            db.execute("UPDATE alembic_version SET version_num = ?", [version])
            db.execute("UPDATE schema_support SET oldest = ?", [oldest])
        db.close()
        _, found, _ = await doctor(serving.options, tmp_path)
        assert found["database"][0]["status"] == status
    file.rename(tmp_path / "away.db")
    _, found, _ = await doctor(serving.options, tmp_path)
    assert "there is no database" in found["database"][0]["detail"]
    assert not file.exists()
    _, found, _ = await doctor(
        serving.options | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}, tmp_path
    )
    assert found["database"][0]["status"] == "error"


async def test_a_wrong_allowlist_an_issuer_without_keys_and_readable_keys(serving, issuer, tmp_path, app_key):
    (tmp_path / "allowlist.yml").write_text("L5: [org/a]\n")
    issuer.outage = True
    key = tmp_path / "key.pem"
    key.write_text(app_key)
    key.chmod(0o644)
    options = dict(serving.options) | {"PRIVATE_KEY_PATH": str(key), "TYPO": "1"}
    _, found, _ = await doctor(options, tmp_path)
    assert {"allowlist", "issuer"} <= errors(found)
    assert found["key"][0]["next"] == f"chmod 600 {key}"
    assert "OOTBOT_TYPO" in found["settings"][0]["detail"]
    assert stat.S_IMODE(key.stat().st_mode) == 0o644


async def test_an_allowlist_that_the_bot_cannot_read_is_said_as_the_bot_would(github, tmp_path, app_key):
    github.set_file(UPSTREAM, "oot/allowlist.yml", "x" * 2_000_000)
    (tmp_path / "large.yml").write_text("ä" * 2_000_000)
    options = options_for(tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url)
    for source, reason in {
        f"{UPSTREAM}:oot": "oot is no file",
        f"{UPSTREAM}:oot/allowlist.yml": "oot/allowlist.yml is larger than 1 MiB",
        f"{UPSTREAM}:allowlist.yml": "404",
        str(tmp_path): "is a directory",
        str(tmp_path / "large.yml"): "large.yml is larger than 1 MiB",
    }.items():
        _, found, _ = await doctor(options | {"ALLOWLIST": source, "DATA_DIR": str(tmp_path)}, tmp_path)
        (check,) = found["allowlist"]
        assert check["status"] == "error"
        assert check["detail"].startswith(f"{source} cannot be read: ")
        assert reason in check["detail"]
    github.faults.add(path="/contents/", status=502)
    away = {"ALLOWLIST": f"{UPSTREAM}:allowlist.yml", "DATA_DIR": str(tmp_path)}
    _, found, _ = await doctor(options | away, tmp_path)
    assert "GitHub is away" in found["allowlist"][0]["detail"]
    assert found["allowlist"][0]["next"] == "check the network and try again"
