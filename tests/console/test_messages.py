"""Does a first-time user understand what is wrong? Ports, misspelt options, unreadable files."""

import os
import re
import socket

import pytest
from click.testing import CliRunner

from bot.cli import main
from tests import forks
from tests.harness import SECRET
from tests.process import ROOT, Process, free_port, options_for, until

INTERNALS = re.compile(r"Errno|Traceback|Client\w*Error|ssl:default|\.part\b|/tmp\w+\b|Multiple exceptions")


@pytest.fixture
def taken():
    """A port that a program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def ootbot(folder, *arguments, **options):
    """Exit code, and everything that was printed; nothing of it may be a library's own word."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {f"OOTBOT_{name}": value for name, value in options.items()}
    process = await forks.ootbot(*arguments, cwd=folder, env=environ)
    out, _ = await process.communicate()
    told = out.decode()
    assert not INTERNALS.search(told), told
    return process.returncode, told


@pytest.mark.parametrize("command", [("demo", "--github"), ("demo", "--once"), ("init", "--upstream", "a/b")])
async def test_a_taken_port_is_one_line_with_a_way_out(tmp_path, taken, command):
    public = ("--public-url", "https://hud.example") if command[0] == "init" else ()
    code, told = await ootbot(tmp_path, *command, *public, "--port", str(taken))
    assert code == 1, told
    (line,) = told.splitlines()
    assert f"127.0.0.1:{taken}" in line
    assert "in use" in line
    assert "--port" in line


async def test_serve_says_which_port_is_taken_and_both_ways_to_choose_another(tmp_path, taken, app_key):
    options = options_for(tmp_path, private_key=app_key)
    code, told = await ootbot(tmp_path, "serve", "--host", "127.0.0.1", "--port", str(taken), **options)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{taken}: address already in use" in told
    assert "--port" in told
    assert "OOTBOT_PORT" in told


async def test_serve_listens_where_its_options_say_and_shows_that_and_the_public_address(tmp_path, app_key):
    options = options_for(tmp_path, private_key=app_key) | {"PUBLIC_URL": "https://hud.example"}
    process, port = Process(tmp_path, **options), free_port()
    ready = await process.start("--host", "127.0.0.1", "--port", str(port))
    await until(ready.is_set, what="its first line")
    process.kill()
    await process.ended()
    line = next(line for line in process.said if line.startswith("ootbot "))
    assert line.endswith(f" at https://hud.example/oot, listening on 127.0.0.1:{port}")


async def test_everything_wrong_in_a_settings_file_is_named_at_once_in_its_own_spelling(tmp_path):
    (tmp_path / "ootbot.toml").write_text('app_idd = 3\njob_timeot = "3h"\nport = "x"\nrelay_app_id = 7\n')
    code, told = await ootbot(tmp_path, "serve")
    assert code == 2
    for sentence in (
        "ootbot.toml: app_idd is no option of ootbot; did you mean app_id?",
        "ootbot.toml: job_timeot is no option of ootbot; did you mean job_timeout?",
        "ootbot.toml: port is wrong: 'x' is not a port",
        "app_id is missing (in ootbot.toml, or as OOTBOT_APP_ID): The GitHub App's id.",
        "relay_app_id and relay_private_key_path belong together",
    ):
        assert sentence in told
    assert "did you mean OOTBOT" not in told


async def test_a_misspelt_variable_is_answered_as_a_variable(tmp_path):
    code, told = await ootbot(tmp_path, "serve", JOB_TIMEOT="3h")
    assert code == 2
    assert "OOTBOT_JOB_TIMEOT is no option of ootbot; did you mean OOTBOT_JOB_TIMEOUT?" in told
    assert "OOTBOT_APP_ID is missing: The GitHub App's id." in told


async def test_a_missing_key_names_the_option_for_its_file(tmp_path):
    _, told = await ootbot(tmp_path, "serve")
    assert "OOTBOT_PRIVATE_KEY_PATH (a file) or OOTBOT_PRIVATE_KEY is missing" in told


async def test_an_unreadable_key_is_told_in_words_beside_everything_else(tmp_path):
    code, told = await ootbot(tmp_path, "serve", PRIVATE_KEY_PATH="missing.pem", PORT="x")
    assert code == 2
    assert "OOTBOT_PRIVATE_KEY_PATH cannot be read: missing.pem: no such file or directory" in told
    assert "OOTBOT_PORT is wrong" in told
    assert "OOTBOT_PRIVATE_KEY is missing" not in told


@pytest.mark.parametrize("content", ["port =\n", "port = 1\nport = 2\n"])
async def test_a_file_that_is_no_toml_leaves_the_environments_mistakes_named(tmp_path, content):
    (tmp_path / "ootbot.toml").write_text(content)
    code, told = await ootbot(tmp_path, "serve", JOB_TIMEOUT="3")
    assert code == 2
    assert "ootbot.toml cannot be read: it is not TOML" in told
    assert "OOTBOT_JOB_TIMEOUT is wrong" in told
    assert "is missing" not in told


async def test_a_folder_for_a_file_is_told_in_words(tmp_path):
    code, told = await ootbot(tmp_path, "serve", "--config", str(tmp_path))
    assert (code, "is a directory" in told) == (2, True)


async def test_a_backup_into_a_missing_folder_names_the_file_that_was_asked_for(tmp_path, app_key):
    target = tmp_path / "nowhere" / "copy.db"
    code, told = await ootbot(tmp_path, "backup", str(target), **options_for(tmp_path, private_key=app_key))
    assert code == 1
    assert told.startswith(f"ootbot: {target}: ")


async def test_doctor_says_in_words_what_cannot_be_reached_or_read(tmp_path, app_key):
    options = options_for(tmp_path, private_key=app_key) | {
        "ALLOWLIST": "missing.yml",
        "WEBHOOK_SECRET": SECRET,
    }
    code, told = await ootbot(tmp_path, "doctor", **options, PUBLIC_URL="http://127.0.0.1:9")
    assert code == 1
    assert "missing.yml cannot be read: no such file or directory" in told
    assert "connection refused" in told
    assert re.fullmatch(r"(1 error|\d+ errors), (1 warning|\d+ warnings)", told.splitlines()[-1]), told
    assert not re.search(r"\b1 (errors|warnings)\b", told)


def test_no_sentence_of_a_help_text_is_cut():
    shown = CliRunner().invoke(main, ["--help"]).output
    assert "..." not in shown.partition("Commands:")[2]
    for name, command in main.commands.items():
        page = CliRunner().invoke(main, [name, "--help"]).output
        if name != "report" and hasattr(command, "commands"):
            assert "..." not in page.partition("Commands:")[2], page


@pytest.mark.parametrize(("shell", "does"), [("zsh", "compdef"), ("fish", "complete ")])
def test_shells_complete_commands_as_documented(shell, does):
    line = f"_OOTBOT_COMPLETE={shell}_source ootbot"
    assert line in (ROOT / "docs" / "install-machine.md").read_text()
    made = CliRunner().invoke(main, prog_name="ootbot", env={"_OOTBOT_COMPLETE": f"{shell}_source"})
    assert does in made.output
    asked = {
        "_OOTBOT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "ootbot ser",
        "COMP_CWORD": "1" if shell == "zsh" else "ser",
    }
    assert "serve" in CliRunner().invoke(main, prog_name="ootbot", env=asked).output
