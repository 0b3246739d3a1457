"""Is anything ever green because something is not known? Any facts, in any combination, with something held back."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oot.verdict.drawings import FACT, draw, judged

ATTEMPTS, JOBS = ("1", "2"), ("build", "test")
OUTCOMES = ("failure", "cancelled", "neutral", "running", "silent", "unheard_of")
WORDS = ("success/push", "success/none", "failure", "running", "missing", "unreadable")
RERUNS = ("asked", "begun", "impossible", "never_started")
DISPATCHES = ("sent", "pending", "held", "superseded", "failed", "never_started", "not_run", "unheard_of")
LEVELS = ("L4", "L3>L4", "L0>L4", "L5>L4")


@st.composite
def drawings(draw_from):
    """A green backend with one or two runs, but for at most three facts, and at most two facts more."""
    attempts = draw_from(st.lists(st.sampled_from(ATTEMPTS), min_size=1, max_size=2))
    keys = [
        f"{run}/{what}.{attempt}" for run, attempt in enumerate(attempts, 1) for what in (*JOBS, "github")
    ]
    others = [f"{run}/{what}.{attempt}" for run in "12" for what in (*JOBS, "github") for attempt in ATTEMPTS]
    others += ["1/rerun.2", "2/rerun.2"]
    changed = draw_from(st.lists(st.sampled_from(keys), unique=True, max_size=3))
    changed += draw_from(st.lists(st.sampled_from(others), unique=True, max_size=2))
    facts = dict.fromkeys(keys, "success")
    for key in changed:
        values = WORDS if "github" in key else RERUNS if "rerun" in key else OUTCOMES
        facts[key] = draw_from(st.sampled_from(values))
    about = f"{draw_from(st.sampled_from(LEVELS))} {draw_from(st.sampled_from(DISPATCHES))}"
    return draw(f"{about} | {' '.join(f'{key}:{value}' for key, value in facts.items())}")


def passes(drawing):
    """Whether the gate lets a commit pass."""
    return judged(drawing).endswith("gate passed")


def known(drawing, what):
    """Return what some facts say, by run and attempt."""
    parsed = [FACT.fullmatch(fact) for fact in drawing.facts]
    return {
        (each["run"], int(each["attempt"]), each["what"]): (each["how"], each["event"])
        for each in parsed
        if each["what"] in what
    }


@settings(max_examples=500)
@given(drawings())
def test_a_green_backend_succeeded_and_github_said_so_of_each_of_its_runs(drawing):
    if not passes(drawing):
        return
    jobs, words = known(drawing, JOBS), known(drawing, ("github",))
    assert ("success", None) in jobs.values()
    for run in {run for run, _, _ in jobs}:
        newest = max(attempt for of, attempt, _ in jobs if of == run)
        assert words[run, newest, "github"] == ("success", None)
        assert {jobs[key][0] for key in jobs if key[:2] == (run, newest)} <= {"success", "neutral"}
    latest = {(run, name): how for (run, _, name), (how, _) in sorted(jobs.items())}
    assert not {"running", "silent", "unheard_of"} & set(latest.values())


@settings(max_examples=500)
@given(drawings())
def test_what_is_held_back_makes_nothing_green(drawing):
    """Nothing from GitHub; nothing of what a job or GitHub said; no report at all; no allowlist."""
    if passes(drawing):
        assert not passes(without(drawing, JOBS))
        assert not passes(without(drawing, ("github",)))
        assert not passes(replace(drawing, words=frozenset({"no_allowlist"})))
        return
    for at, fact in enumerate(drawing.facts):
        what = FACT.fullmatch(fact)["what"]
        before, after = drawing.facts[:at], drawing.facts[at + 1 :]
        if what == "github":
            assert not passes(replace(drawing, facts=before + after))
        for less in () if what == "rerun" else ("running", "unheard_of"):
            blank = f"{fact.partition(':')[0]}:{less}"
            assert not passes(replace(drawing, facts=(*before, blank, *after)))


def without(drawing, what):
    """Return the drawing without all facts of some kind."""
    return replace(drawing, facts=tuple(f for f in drawing.facts if FACT.fullmatch(f)["what"] not in what))
