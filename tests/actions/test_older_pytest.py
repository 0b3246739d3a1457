"""Does the plugin for pytest work on the oldest Python and pytest that it names, with the plugins of that time?"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.cli import main
from tests.actions.older_python import PYTHON_38
from tests.actions.test_pytest_reports import SUBTESTS, SUITE, brief

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not PYTHON_38, reason="no Python 3.8 here")]

PLUGIN = Path(__file__).parents[2] / "actions" / "report"
PACKAGES = ("pytest==7.3.2", "pytest-subtests==0.13.1", "pytest-rerunfailures==14.0", "pytest-xdist==3.5.0")
FLAKY = """
tries = []
def test_flaky():
    tries.append(1)
    assert len(tries) > 1, "too early"
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment with the packages of that time."""
    folder = tmp_path_factory.mktemp("older")
    subprocess.run([PYTHON_38, "-m", "venv", folder], check=True)
    install = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"these packages cannot be had: {done.stderr[-300:]}")
    return folder / "bin" / "python"


def read(python, folder, *options, **files):
    """Run pytest on files; returns what it printed, and what `ootbot tests read` makes of its report."""
    (folder / "test").mkdir()
    for name, text in files.items():
        (folder / "test" / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [python, "-m", "pytest", "-q", "-p", "pytest_reports", "--ootbot-report-prefix", "out/npu"]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PLUGIN), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *options, "test"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    answer = CliRunner().invoke(main, ["tests", "read", str(folder / "out"), "--json"]).output
    return done.stdout + done.stderr, json.loads(answer)


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["alone", "with xdist"])
def test_every_outcome_is_written(python, tmp_path, options):
    printed, found = read(
        python, tmp_path, *options, test_ops=SUITE.replace("\\ud800", "")
    )  # which xdist cannot send
    assert "INTERNALERROR" not in printed
    told = brief(found)
    assert {name: told[name] for name in ("test_passes", "test_fails", "test_setup", "test_xfails")} == {
        "test_passes": ("passed", 1, 0),
        "test_fails": ("failed", 1, 1),
        "test_setup": ("error", 1, 1),
        "test_xfails": ("xfailed", 1, 0),
    }
    assert {case["file"] for case in found["cases"]} == {"test_ops.py"}


def test_a_subtest_that_always_fails_is_a_failure_however_often_it_is_run(python, tmp_path):
    printed, found = read(python, tmp_path, "--reruns=2", test_ops=SUBTESTS, test_flaky=FLAKY)
    assert "INTERNALERROR" not in printed
    told = brief(found)
    assert told.pop("test_flaky") == ("passed", 2, 1)
    assert {name: outcome for name, (outcome, _, _) in told.items()} == {
        "test_native": "failed",
        "test_parts": "failed",
    }
    assert found["counts"]["flaky"] == 1
