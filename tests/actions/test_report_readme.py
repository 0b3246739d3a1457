"""The action's files: its expressions, its inputs, its README."""

import re

import yaml

from tests.actions.reported import ACTION


def test_the_action_pastes_no_expression_into_its_script():
    action = yaml.safe_load((ACTION / "action.yml").read_text())

    assert ["${{" in step["run"] for step in action["runs"]["steps"]] == [False]


def test_the_readme_lists_every_input_and_its_workflow_uses_only_those():
    inputs = yaml.safe_load((ACTION / "action.yml").read_text())["inputs"]
    readme = (ACTION / "README.md").read_text()
    workflow = yaml.safe_load(re.search(r"```yaml\n(.+?)```", readme, re.DOTALL)[1])

    used = [
        set(step["with"])
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "/actions/report@" in step.get("uses", "")
    ]

    table = readme.partition("## Inputs")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(inputs)
    assert len(used) == 3
    assert set().union(*used) <= set(inputs)


def test_in_the_readme_no_job_that_runs_foreign_code_may_ask_for_a_token():
    readme = (ACTION / "README.md").read_text()
    jobs = yaml.safe_load(re.search(r"```yaml\n(.+?)```", readme, re.DOTALL)[1])["jobs"]

    runs_code = {name for name, job in jobs.items() if any("run" in step for step in job["steps"])}
    may_ask = {name for name, job in jobs.items() if "id-token" in job["permissions"]}

    assert (runs_code, may_ask) == ({"build"}, {"ping", "announce", "report"})
