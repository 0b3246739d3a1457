"""ootbot doctor: what it says of GitHub, the App and its installations, and of the bot itself."""

import asyncio
import json
import sqlite3
import stat

import pytest
from aiohttp import web

from bot.github import manifest
from tests.console.doctor.examined import doctor, errors
from tests.harness import L1, L2, L3, L4, SECRET, UPSTREAM
from tests.process import PATIENCE, options_for, until


async def test_all_is_well_with_a_running_bot(serving, github, tmp_path):
    await github.open_pull(UPSTREAM)
    await until(
        lambda: (
            len(
                serving.rows(
                    "SELECT * FROM sweep WHERE finished_at IS NOT NULL AND name IN ('redeliver', 'reconcile')"
                )
            )
            == 2
        ),
        what="both sweeps",
    )
    code, found, said = await doctor(serving.options, tmp_path)
    assert (code, errors(found)) == (0, set()), said
    bad = [check for checks in found.values() for check in checks if check["status"] != "ok"]
    assert bad == []
    app = f"App {github.app.app_id}"
    assert {
        "settings", "key", "disk", "database", "last delivery", "sweep redeliver", "sweep reconcile", "queue",
        "allowlist", "clock", "upstream", "upstream's id", "backends", "issuer", "server",
        "collecting", "blobs", "room for collecting", "google-re2", "parser child", "disabled tests", "bisect",
        *(f"actions of {repo}" for repo in (UPSTREAM, L2, L3, L4)),
        *(f"{app} {what}" for what in ("permissions", "events", "installations", "webhook", "secret", "delivery log")),
    } == set(found)  # fmt: skip
    code, _, said = await doctor(serving.options, tmp_path, "--config", "/dev/null")
    assert said.splitlines()[-1] == "0 errors, 0 warnings"


async def test_missing_settings_are_errors_each(tmp_path):
    code, found, _ = await doctor({"PRIVATE_KEY": "not\na key at all"}, tmp_path)
    assert code == 1
    assert len(found["settings"]) == 5
    assert errors(found) == {"settings"}


async def test_a_preset_is_named_with_what_it_sets(serving, tmp_path):
    _, found, _ = await doctor(serving.options | {"PRESET": "crcr", "UNLISTED": "refuse"}, tmp_path)
    (preset,) = found["preset"]
    assert preset["status"] == "ok"
    assert preset["detail"].startswith("crcr: OIDC_AUDIENCE=ootbot,pytorch-cross-repo-ci-relay; ")
    assert "UNLISTED is set by its own name, which counts" in preset["detail"]


async def test_what_overlaps_is_listed_with_what_counts(serving, issuer, tmp_path):
    (tmp_path / "allowlist.yml").write_text(
        f"L2: [{{repo: {L2}, actions: [opened, reopened, synchronize]}}]\n"
        f"L3: {{npu: {{repo: {L3}, checks: jobs, conclusion: failure}}}}\n"
    )
    own = json.dumps([{"issuer": issuer.url, "repository_claim": "repository", "audiences": ["mine"]}])
    _, found, _ = await doctor(serving.options | {"PRESET": "crcr", "OIDC_ISSUERS": own}, tmp_path)
    said = [(check["status"], check["detail"]) for check in found["overlap"]]
    assert said == [
        ("warning", f"`checks: jobs` of {L3} adds nothing: CHECK_NAMES=crcr counts"),
        ("warning", f"`conclusion` of {L3} adds nothing: with CHECK_NAMES=crcr jobs conclude as reported"),
        ("warning", f"the `audiences` of {issuer.url} count for its tokens, not OIDC_AUDIENCE"),
        ("ok", f"`actions` of {L2} count there, not PULL_ACTIONS"),
    ]
    _, found, _ = await doctor(serving.options, tmp_path)
    assert [check["status"] for check in found["overlap"]] == ["ok"]


async def test_what_is_broken_on_github_is_named(serving, github, tmp_path):
    app = f"App {github.app.app_id}"
    github.app.permissions = {"metadata": "read", "checks": "read", "contents": "write", "actions": "admin"}
    github.app.events = ("push",)
    github.suspend(L1, github.app)
    github.uninstall(L4, github.app)
    github.uninstall(UPSTREAM, github.app)
    github.app.webhook_url = "https://elsewhere.example/api/github/webhooks"
    code, found, said = await doctor(serving.options, tmp_path)
    assert code == 1
    assert {
        "upstream",
        "backends",
        f"{app} permissions",
        f"{app} events",
        f"{app} installations",
        f"{app} webhook",
    } <= errors(found), said
    assert "checks: write" in found[f"{app} permissions"][0]["detail"]
    assert f"{github.url}/settings/apps/ootbot/permissions" in found[f"{app} permissions"][0]["next"]
    assert "workflow_run" in found[f"{app} events"][0]["detail"]
    assert "suspended on watch" in found[f"{app} installations"][0]["detail"]
    assert f"{L4} (L4): the gate cannot turn green" in found["backends"][0]["detail"]


async def test_without_the_right_to_comment_the_rest_goes_on(serving, github, tmp_path):
    for granting in (github.app, *github.state.installations.values()):
        granting.permissions = dict(granting.permissions) | {"pull_requests": "read"}
    _, found, _ = await doctor(serving.options, tmp_path)
    for name in (f"App {github.app.app_id} permissions", f"App {github.app.app_id} installations"):
        assert found[name][0]["status"] == "warning"
        assert "no comment is written" in found[name][0]["detail"]


async def test_permissions_that_were_not_accepted_yet(serving, github, tmp_path):
    for installation in github.state.installations.values():
        installation.permissions = dict(installation.permissions) | {"checks": "read"}
    _, found, _ = await doctor(serving.options, tmp_path)
    name = f"App {github.app.app_id} installations"
    assert errors(found) == {name}
    assert "accepts the new permissions" in found[name][0]["next"]


async def test_events_that_were_not_accepted_yet(serving, github, tmp_path):
    for installation in github.state.installations.values():
        installation.without = frozenset({"check_run"})
    _, found, _ = await doctor(serving.options, tmp_path)
    name = f"App {github.app.app_id} installations"
    assert errors(found) == {name}
    assert "is not subscribed to check_run" in found[name][0]["detail"]
    assert "accepts the new events" in found[name][0]["next"]


async def test_what_strangers_granted_an_app_that_is_public_does_not_matter(serving, github, tmp_path):
    for name in ("stranger/one", "another/two"):
        github.install(github.add_repo(name), github.app)
    github.suspend("stranger/one", github.app)
    github.state.installation(github.app, "another").without = frozenset({"checks", "check_run"})
    _, found, _ = await doctor(serving.options, tmp_path)
    (ours, others) = found[f"App {github.app.app_id} installations"]
    assert (ours["status"], others["status"]) == ("ok", "ok")
    assert "all with every permission" in ours["detail"]
    assert others["detail"].startswith("2 more of accounts that take no part")
    for name in (UPSTREAM, L1, L2, L3, L4):
        github.uninstall(name, github.app)
    _, found, _ = await doctor(serving.options, tmp_path)
    (none,) = found[f"App {github.app.app_id} installations"]
    assert (none["status"], none["detail"]) == ("error", "installed on no account that takes part")


async def test_settings_as_systemd_and_containers_have_them(serving, tmp_path):
    one_line = {name: value for name, value in serving.options.items() if "\n" not in value}
    key = tmp_path / "ootbot.pem"
    key.write_text(serving.options["PRIVATE_KEY"])
    lines = [f"OOTBOT_{name}={value}" for name, value in one_line.items()]
    lines += [
        f'OOTBOT_PRIVATE_KEY_PATH="{key}"',
        "",
        "# of others",
        "POSTGRES_PASSWORD=x",
        "OOTBOT_DATABASE_URL=",
    ]
    (tmp_path / "ootbot.env").write_text("\n".join(lines))
    in_environment = {"PRIVATE_KEY": serving.options["PRIVATE_KEY"]}
    code, _, said = await doctor(in_environment, tmp_path, "--config", "ootbot.env")
    assert (code, "missing" in said) == (0, False), said
    (tmp_path / "ootbot.env").write_text("OOTBOT_APP_ID")
    code, _, said = await doctor(in_environment, tmp_path, "--config", "ootbot.env")
    assert code == 1
    assert "ootbot.env cannot be read: line 1 is not NAME=VALUE" in said


async def test_an_app_that_is_installed_nowhere_yet(serving, github, tmp_path):
    for repo in (UPSTREAM, L1, L2, L3, L4):
        github.uninstall(repo, github.app)
    _, found, said = await doctor(serving.options, tmp_path)
    (check,) = found[f"App {github.app.app_id} installations"]
    assert check["next"] == f"install it: {github.url}/apps/ootbot/installations/new", said


async def test_the_two_ways_a_secret_can_be_wrong(serving, github, tmp_path):
    app = f"App {github.app.app_id}"
    github.app.webhook_secret = "GitHub has another one"
    await github.open_pull(UPSTREAM)
    _, found, _ = await doctor(serving.options, tmp_path)
    assert errors(found) == {f"{app} delivery log"}
    assert "GitHub's secret is not ours" in found[f"{app} delivery log"][0]["detail"]
    _, found, _ = await doctor(serving.options | {"WEBHOOK_SECRET": "these settings have another"}, tmp_path)
    assert f"{app} secret" in errors(found)


async def test_where_deliveries_are_pulled_nobody_has_to_reach_us(serving, github, tmp_path):
    serving.kill()
    await serving.ended()
    options = {name: value for name, value in serving.options.items() if name != "PUBLIC_URL"}
    github.app.webhook_url = "https://nobody.example/hook"
    _, found, _ = await doctor(options | {"RECEIVE": "pull"}, tmp_path)
    assert errors(found) == {"server"}
    assert f"App {github.app.app_id} secret" not in found
    assert found[f"App {github.app.app_id} webhook"][0]["status"] == "ok"
    assert "sweep redeliver" not in found


async def test_two_apps_are_both_examined(github, issuer, tmp_path, app_key):
    upstream, relay = (
        manifest.manifest_for("upstream"),
        manifest.manifest_for("relay", workflow_dispatch=True),
    )
    first = github.register_app(
        webhook_url=None, webhook_secret=SECRET, private_key_pem=app_key, slug="up",
        permissions=upstream.granted, events=upstream.events,
    )  # fmt: skip
    second = github.register_app(
        webhook_url=None, webhook_secret=SECRET, private_key_pem=app_key, slug="re",
        permissions=relay.granted, events=relay.events,
    )  # fmt: skip
    github.install(UPSTREAM, first)
    github.install(L2, second)
    options = options_for(
        tmp_path, private_key=app_key, app_id=first.app_id, api_url=github.api_url, issuer=issuer
    )
    options |= {"RELAY_APP_ID": str(second.app_id), "RELAY_PRIVATE_KEY": app_key, "DATA_DIR": str(tmp_path)}
    (tmp_path / "allowlist.yml").write_text(
        f"L2: [{{repo: {L2}, dispatch: workflow, workflow_file: ci.yml}}]\n"
    )
    _, found, _ = await doctor(options, tmp_path)
    assert found[f"App {second.app_id} (backends) permissions"][0]["status"] == "ok"
    assert found[f"App {first.app_id} (upstream) permissions"][0]["status"] == "ok"
    assert found["backends"][0]["status"] == "ok"
    (tmp_path / "allowlist.yml").write_text(f"L2: [{L2}]\n")
    _, found, _ = await doctor(options, tmp_path)
    assert (
        found[f"App {second.app_id} (backends) permissions"][0]["detail"] == "not asked for: contents: write"
    )


async def test_what_is_off_on_an_enterprise_server_is_said(serving, github, tmp_path):
    github.state.server_version = "3.19.4"
    for events in (github.app.events, *(one.events for one in github.state.installations.values())):
        assert "merge_group" in events
    _, found, _ = await doctor(serving.options, tmp_path)
    (server,) = found["GitHub Enterprise Server"]
    assert server["status"] == "ok"
    assert server["detail"].startswith(
        "3.19.4; what github.com has and this lacks: return_run_details: the run"
    )
    assert "merge_group: there are no merge queues" in server["detail"]


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
