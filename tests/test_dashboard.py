"""The dashboard and the alert rules ask for what there is: metrics, labels, panels in order."""

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from caesura.runtime.server.load.metrics import Metrics
from caesura.runtime.testing import call
from tests.kit.server import double, serve_script

__all__ = ["double", "serve_script"]

ROOT = Path(__file__).parent.parent
BOARD = json.loads((ROOT / "deploy/grafana/caesura.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
ALERTS_FILE = ROOT / "deploy/grafana/alerts.yaml"
ALERTS = [
    rule for group in yaml.safe_load(ALERTS_FILE.read_text())["groups"] for rule in group["rules"]
]
ROWS = ["Overview", "Pauses", "Memory", "Swap and recompute", "Tools", "Predictions", "Tracing"]
UNITS = {"short", "s", "ops", "reqps", "percentunit"}
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds when it scrapes."""

OF_ENGINE = ("vllm:", "caesura_kv_", "caesura_prediction_")
"""Prefixes of the metrics that engines update, and not the endpoint."""

SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
MATCHER = re.compile(r'\s*(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"\s*')
GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")
WORDS = {"sum", "max", "min", "by", "rate", "increase", "histogram_quantile", "or", "vector"}
WORDS |= {"and", "on"}


def shown() -> Iterator[tuple[str, str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def expressions() -> Iterator[tuple[str, str, str]]:
    """Expressions of panels and alerts, with their names, and the labels that their texts name."""
    yield from shown()
    for rule in ALERTS:
        text = " ".join(rule["annotations"].values())
        labels = re.findall(r"\$labels\.(\w+)", text)
        yield rule["alert"], rule["expr"], " ".join(f"{{{{{label}}}}}" for label in labels)


def labels_of(text: str) -> dict[str, set[str]]:
    """Names of samples in an exposition, and the labels that each may have."""
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Metrics of an expression, and the labels that it selects by."""
    found = []
    for name, inside in SELECTOR.findall(expression):
        matchers = inside.split(",")
        assert all(MATCHER.fullmatch(matcher) for matcher in matchers), expression
        found.append((name, {MATCHER.fullmatch(matcher)[1] for matcher in matchers}))
    return found


def check(exposed: dict[str, set[str]], prefixes: tuple[str, ...]) -> int:
    """Hold every expression against an exposition; the number of selectors that were looked at."""
    looked_at = 0
    for title, expression, legend in expressions():
        asked = selectors(expression)
        for name, labels in asked:
            if name.startswith(prefixes):
                assert name in exposed, f"{title}: there is no {name}"
                assert labels <= exposed[name] | OF_PROMETHEUS, f"{title}: labels of {name}"
                looked_at += 1
        if all(name.startswith(prefixes) for name, _ in asked):
            grouped = {
                label.strip()
                for group in GROUPING.findall(expression)
                for label in group.split(",")
            } | set(re.findall(r"\{\{(\w+)\}\}", legend))
            for name, _ in asked:
                assert grouped <= exposed[name] | OF_PROMETHEUS, f"{title}: grouped by {grouped}"
    return looked_at


def test_panels_are_in_rows_and_have_what_a_reader_needs() -> None:
    assert [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"] == ROWS
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_do_not_lie_upon_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (column, row)
            for column in range(at["x"], at["x"] + at["w"])
            for row in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_selector_can_be_narrowed_to_a_job_and_an_instance() -> None:
    variables = [variable["name"] for variable in BOARD["templating"]["list"]]
    assert variables == ["datasource", "job", "instance"]
    for title, expression, _ in shown():
        asked = selectors(expression)
        assert asked, title
        assert all({"job", "instance"} <= labels for _, labels in asked), title
        # What is left without selectors and groupings has no further metric in it.
        rest = re.sub(r"\$__\w+", "", GROUPING.sub("", SELECTOR.sub("", expression)))
        assert set(re.findall(r"[a-zA-Z_:]{2,}", rest)) <= WORDS, title


def test_what_is_idle_shows_no_nan() -> None:
    """Nothing by nothing is NaN, and so is a quantile of nothing."""
    for panel in PANELS:
        asked = [target["expr"] for target in panel["targets"]]
        for expression in asked:
            for divisor in re.split(r" / ", expression)[1:]:
                assert re.fullmatch(r"\(.* > 0\)", divisor), f"{panel['title']}: {divisor}"
        if any(" / " in expr or "histogram_quantile" in expr for expr in asked):
            defaults = panel["fieldConfig"]["defaults"]
            (nothing,) = [one for one in defaults["mappings"] if one["type"] == "special"]
            assert nothing["options"]["match"] == "null+nan", panel["title"]
            assert nothing["options"]["result"]["text"] == defaults["noValue"] == "No traffic"


def test_a_server_leads_to_its_page() -> None:
    (panel,) = [panel for panel in PANELS if panel["title"] == "Server"]
    (link,) = panel["fieldConfig"]["defaults"]["links"]
    assert link["url"] == "http://${__field.labels.instance}/ui/"
    (target,) = panel["targets"]
    assert target["expr"].startswith("max by (instance) (up{")


SEVERITIES = ("critical", "warning", "info")


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Caesura[A-Z]\w+", rule["alert"])
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert not rule["annotations"]["summary"].endswith(".")
    for name in ("description", "runbook"):
        assert rule["annotations"][name].endswith("."), name
    assert all(label in ("instance", "tool") for label in labels_named(rule))


def labels_named(rule: dict[str, Any]) -> list[str]:
    return re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_an_alert_compares_what_is_well_formed(rule: dict[str, Any]) -> None:
    expression = rule["expr"]
    assert selectors(expression), "it asks for nothing"
    assert all("job" in labels for _, labels in selectors(expression))
    rest = GROUPING.sub("", SELECTOR.sub("", expression))
    depth = 0
    for character in rest:
        depth += {"(": 1, ")": -1}.get(character, 0)
        assert depth >= 0, expression
    assert depth == 0, expression
    ranges = re.findall(r"\[[^\]]*\]", rest)
    assert all(re.fullmatch(r"\[\d+[smh]\]", each) for each in ranges), ranges
    assert len(re.findall(r"\b(?:rate|increase)\(", expression)) == len(ranges)
    assert re.search(r"(?:>|==) [\d.]+\s*$", expression), "it compares with nothing"
    words = re.sub(r"\[[^\]]*\]", "", rest.replace("on (instance)", "on"))
    assert set(re.findall(r"[a-zA-Z_:]{2,}", words)) <= WORDS
    for divisor in re.findall(r"/ (.*)", expression):
        assert "> 0)" in divisor, "nothing by nothing is NaN"
    for label in labels_named(rule):
        groups = GROUPING.findall(expression)
        assert groups and all(label in group for group in groups), f"{label} is grouped away"


def test_promtool_reads_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(
        [promtool, "check", "rules", str(ALERTS_FILE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_the_endpoints_metrics_exist(serve_script: Any, double: Any) -> None:
    served = await serve_script([call("double", number=1), "It is 2."], [double])
    await served.chat(server_tools=["double"])
    asked = {name for _, expr, _ in expressions() for name, _ in selectors(expr)}
    exposed = labels_of(await served.metrics())
    # Counters of spans and of entries are there when there is something to count.
    exposed |= labels_of(Metrics(Counted(), Counted()).exposition().decode())
    ours = {name for name in asked if name.startswith("caesura_") and not of_engine(name)}
    assert len(ours) > 5
    names = tuple(ours)
    assert check(exposed, names) >= len(ours)


def of_engine(name: str) -> bool:
    return name.startswith(OF_ENGINE)


class Counted:
    """Somebody who delivers spans, or records entries, and loses some."""

    written = 12
    dropped = 3


@pytest.mark.slow
def test_the_engines_metrics_exist() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine_metrics"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    exposed = labels_of(done.stdout)
    assert check(exposed, OF_ENGINE) > 20


def test_the_check_finds_what_does_not_exist() -> None:
    with pytest.raises(AssertionError, match="there is no"):
        check({}, ("caesura_kv_",))
