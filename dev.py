"""The one entry for working on ootbot: makes `.venv`, then runs what was asked.

Needs Python 3.11 and pip, nothing else. The environment lives in `.venv` and is made again
only when a file of `requirements/` that it was made from has changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
BASE = ("base", "build")
EXTRAS = ("analytics", "clickhouse", "dynamodb", "otel", "postgres", "s3")
TESTS_FAILED = 1  # pytest's exit code
AGAIN_MOST = 3  # failed tests that are run once more: more of them are no accident
LONGEST, LONGEST_NIGHTLY = 300, 3600  # seconds: a test that takes longer hangs, and waits for ever
# GitHub's own description of its API and webhooks, for `test --nightly`, and the parts of it that are looked at
DESCRIPTIONS = {"@octokit/openapi": "23.0.2", "@octokit/openapi-webhooks": "12.1.0"}
DESCRIBED = ("api.github.com.json", "ghes-3.19.json")
ROOM = 4 * 1024**3  # bytes of memory that must be free for the tests' files

EPILOG = """examples:
  python3 dev.py demo                  the whole loop on loopback: open the URLs it prints
  python3 dev.py demo --once           play the scenario, verify what the pull request shows, exit
  python3 dev.py test                  the test suite (SQLite and PostgreSQL, no server needed)
  python3 dev.py test -k webhook -x    anything after `test` goes to pytest
  python3 dev.py lint                  format, lint, types, directions of import
  python3 dev.py check                 lint, then test: what CI runs
  python3 dev.py setup postgres        only the environment, with extras by name
  python3 dev.py generate              write what is made from the code: settings, first migration
  python3 dev.py lock                  resolve the dependencies again (needs uv)
  python3 dev.py bench ingest --json   a benchmark (benchmarks/<name>.py)
  python3 dev.py bench all --json      all of them in short rounds, as one document
  python3 dev.py chaos                 break things, see that nothing is lost (docs/reliability.md)
"""


def main() -> int:
    """Parse the command line, make the environment it needs, run it, return its exit code."""
    parser = argparse.ArgumentParser(
        prog="dev.py",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, help="what to do")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="passed on to it")
    options = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - the reader may start it with any python3
        print("ootbot needs Python 3.11 or newer; this is", sys.version.split()[0])
        return 2
    return COMMANDS[options.command](options.args)


def demo(args: list[str]) -> int:
    """Run `ootbot demo`."""
    environment()
    return run(str(PYTHON), "-m", "bot.cli", "demo", *args)


def test(args: list[str]) -> int:
    """Run pytest with the arguments given; without any, several at once, and what measures time alone after that.

    Where a machine is busy, a test may wait longer than it allows for: a few that failed are run once more. Those that
    pass then are named, and fail the run where `CI` is set. A test that hangs is ended, and shows where it was.
    """
    environment("test", *(("nightly",) if "--nightly" in args else ()))
    if "--nightly" in args:
        fetch_githubs_description()
    pytest = (str(PYTHON), "-m", "pytest")
    if [arg for arg in args if arg != "--nightly"]:
        return run(*pytest, *args)
    longest = LONGEST_NIGHTLY if args else LONGEST
    pytest = (*pytest, "-o", f"faulthandler_timeout={longest}", "-o", "faulthandler_exit_on_timeout=true")
    at_once = min((os.cpu_count() or 1) + 1, 8)  # one more than cores: many tests wait for other processes
    workers = ("-n", str(at_once), "--dist", "worksteal")
    with files_in_memory() as environ:
        code = run(*pytest, "--cache-clear", "-m", "not alone", *workers, *args, environ=environ)
    flaky: list[str] = []
    if code == TESTS_FAILED and 0 < len(failed := failed_tests()) <= AGAIN_MOST:
        print("dev.py: failed beside others, now by itself:", *failed, sep="\n  ", flush=True)
        code = run(*pytest, *args, *failed)
        flaky = [] if code else failed
    code = code or run(*pytest, "-m", "alone", *args, *files_with_the_mark("alone"))
    if flaky:
        print("dev.py: FLAKY, passed only on the second run:", *flaky, sep="\n  ", flush=True)
    return code or (TESTS_FAILED if flaky and os.environ.get("CI") else 0)


def fetch_githubs_description() -> None:
    """Put GitHub's description of its API where `tests/contract` looks; without npm those tests are skipped."""
    folder = VENV / "github-description"
    for package, version in DESCRIPTIONS.items():
        made = folder / package.partition("/")[2]
        if (made / version).exists():
            continue
        with tempfile.TemporaryDirectory() as packed:
            npm = shutil.which("npm")
            told = "there is no npm"
            if npm is not None:
                pack = (npm, "pack", "--silent", "--pack-destination", packed, f"{package}@{version}")
                done = subprocess.run(pack, capture_output=True, text=True, check=False)
                told = done.stderr.strip()
            archives = list(Path(packed).glob("*.tgz"))
            if not archives:
                print(f"dev.py: GitHub's description cannot be fetched: {told}", flush=True)
                return
            shutil.unpack_archive(archives[0], packed, filter="data")
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)
            for name in DESCRIBED:
                shutil.copy(Path(packed) / "package" / "generated" / name, made / name)
            (made / version).touch()


def failed_tests() -> list[str]:
    """Return the tests that failed in the last run, as pytest names them."""
    found = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return list(json.loads(found.read_text(encoding="utf-8"))) if found.exists() else []


def files_with_the_mark(name: str) -> list[str]:
    """Return the test files that use a mark: collecting all tests takes a quarter of a minute."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [
        str(path.relative_to(ROOT))
        for path in tests
        if f"pytest.mark.{name}" in path.read_text(encoding="utf-8")
    ]


@contextlib.contextmanager
def files_in_memory() -> Iterator[dict[str, str]]:
    """Yield an environment in which pytest keeps its files in memory, if there is room: commits wait for a disk."""
    memory = Path("/dev/shm")  # noqa: S108 - Linux's file system in memory; the folder's name is made by tempfile
    if not memory.is_dir() or shutil.disk_usage(memory).free < ROOM:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="ootbot-tests-", dir=memory) as folder:
        yield {"PYTEST_DEBUG_TEMPROOT": folder}


def check(args: list[str]) -> int:
    """Run `lint`, then `test`; stop at the first that fails."""
    return lint([]) or test(args)


def lint(_args: list[str]) -> int:
    """Check format, lint, types, directions of import and where SQL stands; stop at the first step that fails."""
    environment("test", "lint")
    module = (str(PYTHON), "-m")
    steps = (
        (*module, "ruff", "format", "--check", "."),
        (*module, "ruff", "check", "."),
        (*module, "mypy"),
        (*module, "mypy", "actions/report/report.py"),
        (*module, "mypy", "actions/report/pytest_reports.py"),
        (*module, "mypy", "actions/monitor/monitor.py"),
        (str(BIN / "lint-imports"), "--no-logo", "--no-cache"),
        (*module, "pytest", "-q", "tests/test_layout.py", "-k", "sql_stands"),
    )
    for step in steps:
        print("--", *(word.removeprefix(f"{BIN}/") for word in step), flush=True)
        if code := run(*step):
            return code
    return 0


def setup(args: list[str]) -> int:
    """Make the environment, with the extras named, and compile the program: its user may not write beside it."""
    environment(*args)
    compiled()
    print(f"ready: {BIN / 'ootbot'} --help")
    return 0


def bench(args: list[str]) -> int:
    """Run benchmarks/<name>.py, as a module: its own folder has a `tests`, too."""
    names = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    if not args or args[0] not in names:
        print("usage: dev.py bench NAME [options]; names:", ", ".join(names))
        return 2
    environment("test")
    return run(str(PYTHON), "-m", f"benchmarks.{args[0]}", *args[1:])


def chaos(args: list[str]) -> int:
    """Run the fault suite (tests/chaos); with --write the results go into docs/reliability.md."""
    environment("test")
    compiled()
    return run(str(PYTHON), "-m", "tests.chaos", *args)


def generate(_args: list[str]) -> int:
    """Write what is made from the code: the settings' defaults and reference, the first migration."""
    environment("test")
    made = {"config/default.toml": ("settings",), "docs/settings.md": ("settings", "--markdown")}
    for name, command in made.items():
        done = subprocess.run(
            [str(PYTHON), "-m", "bot.cli", *command], cwd=ROOT, check=True, capture_output=True
        )
        (ROOT / name).write_bytes(done.stdout)
    return run(str(PYTHON), "-m", "tests.first_migration")


def lock(_args: list[str]) -> int:
    """Resolve pyproject.toml's dependencies again into requirements/*.txt; needs uv on the PATH."""
    common = ["--universal", "--python-version", "3.11", "--generate-hashes"]
    common += ["--no-emit-index-url", "--no-annotate", "--no-header"]
    base = ["-c", "requirements/base.txt"]
    jobs = [("base", ["pyproject.toml"])]
    jobs += [(name, ["--group", name, *base]) for name in ("build", "test")]
    jobs += [
        ("lint", ["--group", "lint", *base, "-c", "requirements/test.txt"])
    ]  # one environment holds both
    jobs.append(("nightly", ["--group", "nightly", *base, "-c", "requirements/test.txt"]))
    jobs += [(name, ["pyproject.toml", "--extra", name, *base]) for name in EXTRAS]
    for name, what in jobs:
        output = ["--upgrade", "-q", "-o", f"requirements/{name}.txt"]
        if code := run("uv", "pip", "compile", *common, *what, *output):
            return code
    return 0


COMMANDS = {
    "demo": demo,
    "test": test,
    "lint": lint,
    "check": check,
    "setup": setup,
    "generate": generate,
    "lock": lock,
    "bench": bench,
    "chaos": chaos,
}


def environment(*extras: str) -> None:
    """Make or update `.venv` so that it holds the base packages and the extras named."""
    wanted = dict.fromkeys((*BASE, *extras))
    files = [ROOT / "requirements" / f"{name}.txt" for name in wanted]
    if missing := [path.stem for path in files if not path.exists()]:
        known = ", ".join(sorted(path.stem for path in (ROOT / "requirements").glob("*.txt")))
        sys.exit(f"dev.py: no extra named {', '.join(missing)}; there are: {known}")
    marks = {path: VENV / f".{path.stem}-{digest(path)}" for path in files}
    stale = [path for path, mark in marks.items() if not mark.exists()]
    if not stale and PYTHON.exists():
        return
    began = time.monotonic()
    if not PYTHON.exists():
        print("dev.py: making .venv ...", flush=True)
        uv = shutil.which("uv")
        venv.create(VENV, with_pip=uv is None, clear=VENV.exists())
    print("dev.py: installing", ", ".join(path.stem for path in stale), "...", flush=True)
    install("--require-hashes", *(word for path in stale for word in ("-r", str(path))))
    install("--no-deps", "--no-build-isolation", "-e", str(ROOT))
    for path in stale:
        for old in VENV.glob(f".{path.stem}-*"):
            old.unlink()
        marks[path].touch()
    print(f"dev.py: environment ready in {time.monotonic() - began:.0f} s", flush=True)


def compiled() -> None:
    """Compile what has changed, so that no start has to."""
    run(str(PYTHON), "-m", "compileall", "-q", "bot", "handlers")


def install(*args: str) -> None:
    """Install with uv where it is at hand, else with the environment's own pip."""
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "-q", "--python", str(PYTHON)]
    else:
        command = [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if code := run(*command, *args):
        sys.exit(f"dev.py: installing failed (exit {code}); the lines above say why")


def digest(path: Path) -> str:
    """Return a short name for what the file holds and the Python it is for."""
    return hashlib.sha256(path.read_bytes() + sys.version.encode()).hexdigest()[:16]


def run(*command: str, environ: Mapping[str, str] | None = None) -> int:
    """Run a command in the project's folder, with `environ` added to its environment, and return its exit code."""
    try:
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **(environ or {})}, check=False
        ).returncode
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
