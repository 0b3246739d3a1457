"""What does `dev.py test` make of tests that fail beside others, or never end?"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DEV = Path(__file__).parent.parent / "dev.py"
PYTEST = "[pytest]\nmarkers =\n    alone: measures time\n"
FAILS_ONCE = """
import pathlib

def test_that_depends_on_time():
    seen = pathlib.Path(__file__).with_name("seen")
    before = seen.exists()
    seen.touch()
    assert before

def test_that_passes():
    pass
"""
HANGS_ONCE = FAILS_ONCE.replace("assert before", "before or __import__('time').sleep(600)")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """dev.py in a project of its own: a folder of tests."""
    spec = importlib.util.spec_from_file_location("dev", DEV)
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "environment", lambda *_: None)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of a run's time would be reading them
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist")
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "pytest.ini").write_text(PYTEST)
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_alone.py").write_text("import pytest\n@pytest.mark.alone\ndef test_a(): pass\n")
    return dev, tests


@pytest.mark.parametrize(("variable", "code"), [("", 0), ("true", 1)], ids=["here", "in CI"])
def test_a_test_that_passes_only_on_its_second_run_is_named_and_fails_ci(
    project, capfd, monkeypatch, variable, code
):
    dev, tests = project
    monkeypatch.setenv("CI", variable)
    (tests / "test_one.py").write_text(FAILS_ONCE)
    assert dev.test([]) == code
    told = capfd.readouterr().out
    assert "failed beside others, now by itself:\n  tests/test_one.py::test_that_depends_on_time" in told
    *before, title, name = told.splitlines()
    assert "1 passed" in before[-1]  # the test that runs alone
    assert title == "dev.py: FLAKY, passed only on the second run:"
    assert name == "  tests/test_one.py::test_that_depends_on_time"


def test_ci_fails_on_a_test_that_passes_only_on_its_second_run():
    assert "\nCI=true python3 dev.py test\n" in (DEV.parent / ".ci" / "run").read_text()


@pytest.mark.parametrize("broken", [1, 4])
def test_what_is_broken_stays_broken(project, capfd, broken):
    dev, tests = project
    (tests / "test_one.py").write_text("".join(f"def test_{n}(): assert 0\n" for n in range(broken)))
    assert dev.test([]) == 1
    told = capfd.readouterr().out
    assert "FLAKY" not in told
    assert ("now by itself" in told) == (broken <= dev.AGAIN_MOST)


def test_a_test_that_hangs_is_ended_shows_where_and_delays_no_other(project, capfd, monkeypatch):
    dev, tests = project
    monkeypatch.setattr(dev, "LONGEST", 3)
    (tests / "test_one.py").write_text(HANGS_ONCE)
    assert dev.test([]) == 0
    told = capfd.readouterr()
    assert "crashed while running 'tests/test_one.py::test_that_depends_on_time'" in told.out
    assert "FLAKY, passed only on the second run:\n  tests/test_one.py::test_that_depends_on_time" in told.out
    assert "Timeout (0:00:03)!" in told.err
    assert 'test_one.py", line 8 in test_that_depends_on_time' in told.err
