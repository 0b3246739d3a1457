"""Does the container file build what it says? Its steps are read and, as far as they need no container engine, taken."""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from bot.core.settings import Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
STEPS = [
    line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", TEXT).splitlines() if line and line[0] != "#"
]
COPIED = [
    source
    for step, rest in STEPS
    if step == "COPY" and not rest.startswith("--from")
    for source in rest.split()[:-1]
]


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git here")
    return listed.stdout.splitlines()


def values(step: str) -> list[str]:
    return [rest for name, rest in STEPS if name == step]


def test_what_is_copied_exists_and_is_not_kept_out():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    for source in COPIED:
        assert (ROOT / source).exists(), source
        assert any(
            fnmatch.fnmatch(source, pattern) or source.startswith(f"{pattern}/") for pattern in allowed
        ), source
    assert ignored[0] == "*"
    assert ignored[-1] == "**/*.pem"
    assert not any(name.endswith(".pem") for name in tracked())


def test_every_package_is_held_to_its_hash():
    installs = re.findall(r"pip install (.*?)(?= && |$)", " ".join(values("RUN")))
    assert len(installs) == 3
    for options in installs:
        assert "--require-hashes" in options or "--no-deps --no-index" in options
        for name in re.findall(r"-r (\S+)", options):
            text = (ROOT / name).read_text()
            pinned = re.findall(r"^[a-z0-9][\w.\[\]-]*==", text, re.MULTILINE)
            blocks = re.split(r"\n(?=\S)", text.strip())
            assert len(pinned) == len(blocks)
            assert all("--hash=sha256:" in block for block in blocks)


def test_it_is_slim_and_not_root():
    bases = [rest.split()[0] for rest in values("FROM")]
    assert all(base.endswith("-slim") and re.search(r":\d+\.\d+-", base) for base in bases)
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == ">=3.11"
    (user,) = values("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    names = [name for name, _ in STEPS]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "pip" not in " ".join(rest for name, rest in STEPS[names.index("USER") :])


def test_its_environment_are_options_of_ours():
    for name in re.findall(r"OOTBOT_(\w+)=", " ".join(values("ENV"))):
        assert name.lower() in Settings.__dataclass_fields__


def test_the_wheel_made_of_what_is_copied_runs(tmp_path):
    """The build step of the container, then the program from the wheel alone."""
    for source in COPIED:
        target = tmp_path / "src" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel")]
    done = subprocess.run(build, cwd=tmp_path / "src", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        names = archive.namelist()
    assert {
        "bot/_config/app.yml",
        "bot/_config/app.relay.yml",
        "bot/_config/issuers.toml",
        "bot/_report/report.py",
    } <= set(names)
    assert not any(name.startswith(("tests/", "data/")) or name.endswith(".pem") for name in names)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ["PYTHONPATH"] = str(tmp_path / "installed")
    say = "import bot, bot.github.manifest, bot.core.setting_types; print(bot.__file__, bot.github.manifest.manifest_for('one').name, len(bot.core.setting_types.issuers('github-actions')))"
    for command in (["-c", say], ["-m", "bot.cli", "settings"], ["-m", "bot.cli", "report", "--help"]):
        done = subprocess.run(
            [sys.executable, "-P", *command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert command[0] == "-m" or str(tmp_path) in done.stdout


def test_compose_starts_it_beside_postgresql():
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yml").read_text())
    db = compose["services"].pop("db")
    assert all(one["logging"]["options"]["max-size"] for one in (db, *compose["services"].values()))
    for role, bot in compose["services"].items():
        assert bot["command"] == ["serve", "--role", role]
        assert (ROOT / "deploy" / "compose" / bot["build"] / "Dockerfile").resolve().is_file()
        for name in bot["environment"]:
            assert name.removeprefix("OOTBOT_").lower() in Settings.__dataclass_fields__
        assert bot["environment"]["OOTBOT_DATABASE_URL"].endswith("@db/" + db["environment"]["POSTGRES_DB"])
        assert bot["read_only"] is True
        assert bot["cap_drop"] == ["ALL"]
        assert set(bot["depends_on"]) == {"db"}
    assert compose["services"]["web"]["ports"] == ["127.0.0.1:8080:8080"]
    assert "ports" not in compose["services"]["worker"]  # so that there may be several
    assert db["volumes"][0].partition(":")[0] in compose["volumes"]
    assert "healthcheck" in db


def test_compose_is_prepared_by_a_user_whom_the_bot_may_run_as(tmp_path):
    """The lines at the top of compose.yml, but for the one that registers the App."""
    head = (ROOT / "deploy" / "compose" / "compose.yml").read_text().partition("\nname:")[0]
    folder, register, *rest = re.findall(r"^#   (.+)$", head, re.MULTILINE)
    for name, says in (("sudo", 'echo "$@"'), ("id", 'echo "$WHO"'), ("openssl", "echo secret")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    for who, made in (("0", None), ("1000", "POSTGRES_PASSWORD=secret\nOOTBOT_UID=1000\nOOTBOT_GID=1000\n")):
        environ = {"WHO": who, "PATH": f"{tmp_path}:/usr/bin:/bin"}
        script = "\n".join([folder, *rest])
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        env = tmp_path / ".env"
        assert (env.read_text() if env.exists() else None) == made
        assert done.stdout == f"install -d -m 700 -o {who} -g {who} /etc/ootbot\n"
    assert env.stat().st_mode & 0o777 == 0o600
    assert "--folder /etc/ootbot " in register
