"""What do commands do where the bot has not run yet? Those that only look make nothing; the others make the database."""

import asyncio
import functools
import os
import stat
import uuid

import pytest

from tests import forks
from tests.databases import connected
from tests.process import ROOT, free_port, options_for


@pytest.fixture
def run(tmp_path, app_key):
    """Run a command with other settings than the usual ones."""

    def run(*words, **settings):
        options = options_for(tmp_path, private_key=app_key) | {"PORT": str(free_port())} | settings
        environ = os.environ | {f"OOTBOT_{name}": value for name, value in options.items()}
        return forks.ended(*words, cwd=ROOT, env=environ)

    return run


@pytest.fixture
def ootbot(run, tmp_path):
    """Run a command with settings whose database is not there."""
    return functools.partial(run, DATA_DIR=str(tmp_path / "nowhere"))


@pytest.fixture
def on_server(run, tmp_path):
    """Look at the tasks of a database on a server."""
    return lambda url: run("tasks", "list", DATA_DIR=str(tmp_path), DATABASE_URL=url)


@pytest.mark.parametrize("command", ["allowlist show", "keys list", "tasks list"])
def test_what_only_looks_makes_no_database(ootbot, tmp_path, command):
    code, out, err = ootbot(*command.split())
    assert (code, out) == (1, "")
    assert f"there is no database at {tmp_path}/nowhere/ootbot.db" in err
    assert not (tmp_path / "nowhere").exists()


def test_a_key_may_be_made_before_the_bot_runs(ootbot):
    assert ootbot("keys", "add", "org/repo")[0] == 0
    assert "org/repo" in ootbot("keys", "list")[1]


def test_a_new_database_is_its_owners_alone(ootbot, tmp_path):
    before = os.umask(0o022)
    try:
        assert ootbot("keys", "add", "org/repo")[0] == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "nowhere" / "ootbot.db").stat().st_mode) == 0o600


def test_a_file_that_is_no_database_is_named_with_the_next_step(ootbot, tmp_path):
    (tmp_path / "nowhere").mkdir()
    file = tmp_path / "nowhere" / "ootbot.db"
    file.write_bytes(b"no database at all\n" * 1000)
    for command in ("tasks list", "keys add org/repo", "serve"):
        code, out, err = ootbot(*command.split())
        assert (code, out) == (1, ""), command
        assert f"ootbot: the database cannot be used: {file}: file is not a database; restore a backup" in err
        assert "Traceback" not in err
    code, out, err = ootbot("doctor")
    assert (code, "Traceback" in err) == (1, False)
    assert f"error    database: the database cannot be used: {file}: file is not a database" in out


def test_a_file_that_cannot_be_opened_is_named_with_the_next_step(ootbot, tmp_path):
    file = tmp_path / "nowhere" / "ootbot.db"
    file.mkdir(parents=True)
    code, out, err = ootbot("tasks", "list")
    assert (code, out) == (1, "")
    assert err == (
        f"ootbot: the database cannot be used: {file}: unable to open database file; "
        "check that its folder exists and that this user may write in it\n"
    )


def test_a_file_the_system_refuses_is_named_with_the_next_step(ootbot, tmp_path):
    (tmp_path / "nowhere").write_text("a file where the folder should be")
    code, out, err = ootbot("serve")
    assert (code, out) == (1, "")
    assert (
        err
        == f"ootbot: {tmp_path}/nowhere: file exists; nothing is replaced: move it away, or choose another path\n"
    )
    (tmp_path / "nowhere").unlink()
    assert ootbot("keys", "add", "org/repo")[0] == 0
    code, out, err = ootbot("backup", str(tmp_path / "none" / "copy.db"))
    assert (code, out) == (1, "")
    assert err.startswith(f"ootbot: {tmp_path}/none/copy.db: ")
    assert err.endswith("no such file or directory; check the path: its folder must exist\n")


def test_what_cannot_be_read_is_said_once_without_what_follows_from_it(tmp_path, app_key):
    def run(environ, *words):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
        code, out, err = forks.ended("serve", *words, cwd=tmp_path, env=clean | environ)
        assert (code, out) == (2, "")
        return err.splitlines()

    next_step = "ootbot: docs/settings.md lists every option; `ootbot init` writes those that are required"
    assert run({}, "--config", "none.toml") == [
        "ootbot: --config none.toml: there is no such file",
        next_step,
    ]
    code, out, _ = forks.ended("doctor", "--config", "none.toml", cwd=tmp_path, env=dict(os.environ))
    assert code == 1
    assert "--config none.toml: there is no such file" in out
    assert "`ootbot init`" in out
    (tmp_path / "wrong.toml").write_text("app_id = [")
    first, last = run({}, "--config", "wrong.toml")
    assert first.startswith("ootbot: wrong.toml cannot be read: it is not TOML")
    assert last == next_step
    options = options_for(tmp_path, private_key=app_key)
    del options["PRIVATE_KEY"]
    environ = {f"OOTBOT_{name}": value for name, value in options.items()}
    first, last = run(environ | {"OOTBOT_PRIVATE_KEY_PATH": "none.pem"})
    assert first.startswith("ootbot: OOTBOT_PRIVATE_KEY_PATH cannot be read: ")
    assert last == next_step


def test_a_server_that_is_down_is_named_without_its_password(on_server):
    code, out, err = on_server("postgresql://me:a-password@127.0.0.1:9/bot?password=another")
    assert (code, out) == (1, "")
    assert err.startswith("ootbot: the database cannot be used: 127.0.0.1, bot: ")
    assert err.endswith("; check that it runs, and DATABASE_URL\n")
    assert err.count("\n") == 1
    assert "another" not in err
    assert "a-password" not in err


def test_a_server_without_the_database_says_what_to_do(on_server, postgres_server):
    code, out, err = on_server(postgres_server.replace("/postgres?", "/not_there?"))
    assert (code, out) == (1, "")
    assert 'database "not_there" does not exist; create it, or correct its name in DATABASE_URL' in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ("\n", 0, ""),
        ("&application_name=bot&connect_timeout=10&target_session_attrs=any", 0, ""),
        ("&channel_binding=require", 2, "OOTBOT_DATABASE_URL is wrong: channel_binding may be"),
        ("&tcp_user_timeout=1", 2, "OOTBOT_DATABASE_URL is wrong: tcp_user_timeout cannot be set there"),
    ],
)
def test_an_address_from_elsewhere_works_or_is_refused_in_a_sentence(
    on_server, postgres_server, more, code, said
):
    ended, _, err = on_server(postgres_server + more)
    assert ended == code, err
    assert said in err
    assert "Traceback" not in err


async def execute(server, statement):
    async with connected(server) as conn:
        await conn.execute(statement)


@pytest.mark.parametrize("command", ["serve", "tasks list"])
def test_a_server_whose_database_is_not_in_utf8_is_refused(run, postgres_server, tmp_path, command):
    name = f"latin{uuid.uuid4().hex}"
    made = f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    asyncio.run(execute(postgres_server, made))
    url = postgres_server.replace("/postgres?", f"/{name}?")
    code, out, err = run(*command.split(), DATA_DIR=str(tmp_path), DATABASE_URL=url)
    assert (code, out) == (2, "")
    assert err.startswith(f"ootbot: the database {name} is in LATIN1, which cannot hold all text")
    assert "`createdb --encoding=UTF8 --template=template0 NAME`" in err
    assert err.count("\n") == 1
    code, out, _ = run("doctor", DATA_DIR=str(tmp_path), DATABASE_URL=url)
    assert (code, f"error    database: the database {name} is in LATIN1" in out) == (1, True)
