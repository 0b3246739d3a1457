"""Do the two kustomize folders fit together, and with the code? What kustomize would make of them is read, not made."""

import re
from pathlib import Path

import pytest
import yaml

from bot.core.settings import Settings
from bot.ops import health

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
ROLES = ROOT / "deploy" / "kubernetes-roles"
INSTALL = (ROOT / "docs" / "install-kubernetes.md").read_text()
PRIVATE_KEYS = {"private_key_path", "relay_private_key_path"}  # files of settings


def kustomization(folder: Path) -> dict:
    return yaml.safe_load((folder / "kustomization.yaml").read_text())


def parts(folder: Path) -> dict[str, dict]:
    """The manifests a folder names itself, by their kind."""
    names = [name for name in kustomization(folder)["resources"] if name.endswith(".yaml")]
    beside = {"kustomization.yaml", "restore.yaml"} if folder == FOLDER else {"kustomization.yaml"}
    assert {path.name for path in folder.iterdir()} == beside | set(names)
    return {each["kind"]: each for each in (yaml.safe_load((folder / name).read_text()) for name in names)}


def workloads() -> dict[str, dict]:
    return {"web": parts(FOLDER)["StatefulSet"]["spec"], "worker": parts(ROLES)["Deployment"]["spec"]}


def container(of: dict) -> dict:
    (only,) = of["template"]["spec"]["containers"]
    return only


def environment(of: dict) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(of)["env"]}


def test_the_service_selects_the_doors_and_never_the_worker():
    selector = parts(FOLDER)["Service"]["spec"]["selector"].items()
    labels = {role: of["template"]["metadata"]["labels"].items() for role, of in workloads().items()}
    assert selector <= labels["web"]
    assert not selector <= labels["worker"]
    for role, of in workloads().items():
        assert of["selector"]["matchLabels"].items() == labels[role]
    assert len({tuple(each) for each in labels.values()}) == 2  # neither takes the other's pods for its own


def test_doors_and_work_are_apart_where_the_folder_says_so():
    (patch,) = kustomization(ROLES)["patches"]
    web = parts(FOLDER)["StatefulSet"]
    assert patch["target"] == {"kind": web["kind"], "name": web["metadata"]["name"]}
    (change,) = yaml.safe_load(patch["patch"])
    assert change["path"] == "/spec/template/spec/containers/0/args"
    assert change["value"] == ["serve", "--role", "web"]
    assert container(workloads()["worker"])["args"] == ["serve", "--role", "worker"]
    assert "../kubernetes" in kustomization(ROLES)["resources"]
    assert environment(workloads()["web"]) == environment(workloads()["worker"])


def test_the_allowlist_is_the_one_of_the_secret_and_none_is_shipped():
    for of in workloads().values():
        assert "OOTBOT_ALLOWLIST" not in environment(of)
        (volume,) = [each for each in of["template"]["spec"]["volumes"] if each["name"] == "allowlist"]
        (mount,) = [each for each in container(of)["volumeMounts"] if each["name"] == "allowlist"]
        made = re.search(r"create configmap (\S+) --from-file=(\S+)", INSTALL)
        assert volume["configMap"] == {"name": made[1], "optional": True}
        assert f"OOTBOT_ALLOWLIST={mount['mountPath']}/{made[2]}|" in INSTALL
    for folder in (FOLDER, ROLES):
        assert kustomization(folder).keys().isdisjoint({"configMapGenerator", "secretGenerator"})


def test_deliveries_come_in_while_there_is_no_allowlist():
    """With /readyz, a bot without one would be sent nothing, and events could not be kept until there is one."""
    probes = container(workloads()["web"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert probes[probe]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert "/healthz" in {route.path for route in health.routes}


def test_no_service_sets_what_looks_like_our_settings():
    restore = yaml.safe_load((FOLDER / "restore.yaml").read_text())["spec"]
    pods = [of["template"]["spec"] for of in workloads().values()]
    assert [pod["enableServiceLinks"] for pod in (restore, *pods)] == [False] * 3


@pytest.mark.parametrize("role", ["web", "worker"])
def test_the_parts_of_a_pod_fit_together(role):
    of = workloads()[role]
    only, volumes = container(of), of["template"]["spec"]["volumes"] + of.get("volumeClaimTemplates", [])
    (port,) = only["ports"]
    assert str(port["containerPort"]) == environment(of)["OOTBOT_PORT"]
    assert of["template"]["metadata"]["annotations"]["prometheus.io/port"] == environment(of)["OOTBOT_PORT"]
    assert {each["name"] for each in only["volumeMounts"]} == {
        each.get("name") or each["metadata"]["name"] for each in volumes
    }
    commented = re.findall(r"# - \{name: OOTBOT_(\w+)", (FOLDER / "statefulset.yaml").read_text())
    options = {name.removeprefix("OOTBOT_").lower() for name in (*environment(of), *commented)}
    assert options <= Settings.__dataclass_fields__.keys() | PRIVATE_KEYS
    for folder in (FOLDER, ROLES):
        assert only["image"] in {each["name"] for each in kustomization(folder)["images"]}


def test_the_folders_name_one_namespace_and_port():
    found = parts(FOLDER)
    assert found["Namespace"]["metadata"]["name"] == kustomization(FOLDER)["namespace"]
    assert kustomization(ROLES)["namespace"] == kustomization(FOLDER)["namespace"]
    (port,) = container(workloads()["web"])["ports"]
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]


@pytest.mark.parametrize("role", ["web", "worker"])
def test_the_pod_may_do_little(role):
    pod, only = workloads()[role]["template"]["spec"], container(workloads()[role])
    user = re.search(r"^USER (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == user[1]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_copy_is_put_in_place_on_the_volume_of_the_bot_by_its_own_user():
    pod, bot = yaml.safe_load((FOLDER / "restore.yaml").read_text()), parts(FOLDER)["StatefulSet"]
    (claim,), (volume,) = bot["spec"]["volumeClaimTemplates"], pod["spec"]["volumes"]
    claimed = f"{claim['metadata']['name']}-{bot['metadata']['name']}-0"
    assert volume["persistentVolumeClaim"]["claimName"] == claimed
    assert pod["metadata"]["namespace"] == kustomization(FOLDER)["namespace"]
    like = bot["spec"]["template"]["spec"]
    assert pod["spec"]["securityContext"] == like["securityContext"]
    (only,) = pod["spec"]["containers"]
    assert only["securityContext"] == container(bot["spec"])["securityContext"]
    assert only["volumeMounts"][0]["mountPath"] == environment(bot["spec"])["OOTBOT_DATA_DIR"]
