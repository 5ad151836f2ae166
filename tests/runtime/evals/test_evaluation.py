"""Evaluations: samples, errors, interruptions; what the reports say, and how two of them differ."""

import asyncio
import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, Sampling, ScriptedEngine, UsageError, tool
from caesura.evals import (
    Calls,
    Case,
    CaseResult,
    Contains,
    Evaluation,
    Report,
    Sample,
    compare,
    evaluate,
)
from caesura.runtime.evals.comparison import sign_test
from caesura.runtime.evals.report import wilson
from caesura.runtime.testing import call, say


def price(item: str) -> int:
    """Look up what an item costs."""
    return {"lamp": 24, "chair": 59}[item]


def model(messages: Any, tools: Any) -> Any:
    last = messages[-1]
    if last["role"] == "tool":
        return say(f"It is {last['content']} euros.")
    return call("price", item=last["content"].split()[-1].strip("?"))


CASES = [
    Case("How much is a lamp?", name="lamp", checks=[Contains("24")], metadata={"kind": "one"}),
    Case("How much is a chair?", name="chair", checks=[Contains("60")]),
    Case("How much is a shelf?", name="shelf", checks=[Contains("24")]),
]


async def test_an_agent_is_evaluated_with_samples_and_checks_of_all_cases() -> None:
    engine = ScriptedEngine(model)
    report = await evaluate(
        Agent(engine, [price], name="clerk"), CASES, checks=[Calls("price")], samples=4
    )
    assert [(case.name, case.passes, len(case.samples)) for case in report.cases] == [
        ("lamp", 4, 4),
        ("chair", 0, 4),
        ("shelf", 0, 4),
    ]
    assert (report.name, report.complete) == ("clerk", True)
    assert math.isclose(report.rate, 1 / 3)
    assert [case.name for case in report.failed()] == ["chair", "shelf"]
    sample = report["chair"].samples[0]
    assert [check.passed for check in sample.checks] == [False, True]
    assert sample.calls == (("price", '{"item": "chair"}'),)
    assert sample.why == "contains '60': ['60'] missing in 'It is 59 euros.'"
    assert sample.turns == 2 and sample.completion_tokens > 0
    assert len(engine.sessions) == 12 and engine.open_sessions == 0
    table = str(report)
    assert "lamp" in table and "4/4" in table and "51% to 100%" in table


async def test_samples_of_an_agent_with_a_seed_differ_in_it() -> None:
    engine = ScriptedEngine(model)
    agent = Agent(engine, [price], sampling=Sampling(seed=7, temperature=1))
    report = await evaluate(agent, CASES[:1], samples=3)
    assert report.rate == 1
    assert sorted(session.spec.sampling.seed or 0 for session in engine.sessions) == [7, 8, 9]
    assert engine.open_sessions == 0


async def test_a_tool_that_needs_approval_is_not_waited_for() -> None:
    paid = tool(approval=True)(price)
    agent = Agent(ScriptedEngine(model), [paid])
    report = await evaluate(agent, CASES[:1], samples=2)
    for sample in report["lamp"].samples:
        assert "calls of price need a person's approval, and nobody is asked" in sample.error


async def test_functions_are_evaluated() -> None:
    def short(prompt: Any) -> str:
        return "24" if "lamp" in prompt else "60"

    async def late(prompt: Any) -> str:
        return short(prompt)

    for subject in (short, late, lambda prompt: late(prompt)):
        report = await evaluate(subject, CASES)
        assert [case.rate for case in report.cases] == [1, 1, 0]


async def test_an_error_of_an_answer_or_a_check_loses_no_other() -> None:
    def subject(prompt: Any) -> str:
        if "chair" in prompt:
            raise ValueError("no chairs today")
        return "24"

    def broken(answer: str) -> bool:
        return bool(1 / 0)

    report = await evaluate(subject, [*CASES, Case("Hi", name="broken", checks=[broken])])
    assert [case.rate for case in report.cases] == [1, 0, 1, 0]
    assert report["chair"].samples[0].error == "ValueError: no chairs today"
    assert report["broken"].why == "broken: ZeroDivisionError: division by zero"


async def test_so_many_answers_are_made_at_the_same_time() -> None:
    under_way, most = 0, 0
    gate = asyncio.Event()

    async def subject(prompt: Any) -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 2:
            gate.set()
        await gate.wait()
        await asyncio.sleep(0)
        under_way -= 1
        return "24"

    await evaluate(subject, CASES, samples=5, concurrency=2)
    assert most == 2


async def test_an_interruption_keeps_what_is_done_and_the_rest_can_follow() -> None:
    seen: list[str] = []
    reached = asyncio.Event()
    go_on = False

    async def subject(prompt: Any) -> str:
        if "shelf" in prompt and not go_on:
            reached.set()
            await asyncio.Event().wait()
        return "24"

    evaluation = Evaluation(
        subject, CASES, concurrency=1, told=lambda case, sample: seen.append(case.name)
    )
    running = asyncio.create_task(evaluation.run())
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == ["lamp", "chair"]
    assert [case.name for case in evaluation.report.cases] == ["lamp", "chair"]
    assert not evaluation.report.complete
    assert "interrupted: cases or samples are missing" in str(evaluation.report)
    go_on = True
    report = await evaluation.run()
    assert report.complete and seen == ["lamp", "chair", "shelf"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"samples": 0}, "samples must be a whole number from 1, got 0"),
        ({"concurrency": 1.5}, "concurrency must be a whole number from 1, got 1.5"),
        ({"cases": []}, "there is nothing to evaluate"),
        ({"cases": [Case("a"), Case("a")]}, "two cases have the name 'a'"),
        ({"subject": 3}, "an agent or a function is evaluated, got 3"),
        ({"checks": [3]}, "3 is no check"),
    ],
)
def test_mistakes_are_told(given: dict[str, Any], said: str) -> None:
    whole: dict[str, Any] = {"subject": str, "cases": CASES} | given
    subject = whole.pop("subject")
    with pytest.raises(UsageError, match=said.replace("'", ".")):
        Evaluation(subject, whole.pop("cases"), **whole)


# -- Reports -------------------------------------------------------------------------------------


def sampled(**rates: tuple[int, int]) -> Report:
    made = []
    for name, (passes, count) in rates.items():
        samples = tuple(Sample(number < passes, text=f"answer {number}") for number in range(count))
        made.append(CaseResult(name, samples))
    return Report(tuple(made), "clerk", 1.5)


@pytest.mark.parametrize(("passes", "count"), [(0, 3), (3, 3), (1, 5), (8, 10), (50, 100)])
def test_intervals_are_wilsons(passes: int, count: int) -> None:
    """At its ends the rate is 1.96 standard errors away, of the rates that stand there."""
    found = wilson(passes / count, count)
    assert found is not None
    for end, outermost in zip(found, (0.0, 1.0), strict=True):
        distance = abs(passes / count - end)
        if end != outermost:
            error = math.sqrt(end * (1 - end) / count)
            assert distance == pytest.approx(1.959963984540054 * error, abs=1e-12)
        else:
            assert distance == 0
    assert wilson(0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_no_interval_is_told_of_two_samples() -> None:
    assert sampled(lamp=(1, 2))["lamp"].interval is None
    assert "to" not in str(sampled(lamp=(1, 2))).splitlines()[1].split("50%")[1]


async def test_a_report_survives_its_file(tmp_path: Path) -> None:
    subject = Agent(ScriptedEngine(model), [price], name="clerk")
    report = await evaluate(subject, CASES, samples=2)
    report.save(tmp_path / "report.json")
    assert Report.load(tmp_path / "report.json") == report
    assert not (tmp_path / ".report.json.part").exists()


def test_what_is_no_report_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.json: cannot be read"):
        Report.load(tmp_path / "no.json")
    (tmp_path / "a.json").write_text('{"cases": 3}')
    with pytest.raises(UsageError, match=r"is no report of an evaluation: cases: "):
        Report.load(tmp_path / "a.json")
    with pytest.raises(UsageError, match=r"report\.json: cannot be written: "):
        sampled(lamp=(1, 1)).save(tmp_path / "no" / "report.json")


def test_junit_counts_failures_and_errors_and_bears_any_text(tmp_path: Path) -> None:
    wrong = CaseResult("we\x00ird <&>", (Sample(False, error="Boom: \x1b]]>"),))
    report = sampled(lamp=(3, 3), chair=(2, 3))
    report = Report((*report.cases, wrong), "clerk", 1.5)
    report.junit(tmp_path / "all.xml")
    suite = ET.parse(tmp_path / "all.xml").getroot()
    assert suite.attrib == {
        "name": "clerk",
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "time": "1.500",
    }
    lamp, chair, weird = suite
    assert (lamp.get("name"), len(lamp)) == ("lamp", 0)
    assert chair[0].tag == "failure" and "2 of 3 samples passed" in chair[0].get("message", "")
    assert weird[0].tag == "error" and "Boom" in (weird[0].text or "")
    report.junit(tmp_path / "most.xml", least=0.6)
    assert ET.parse(tmp_path / "most.xml").getroot().get("failures") == "0"


# -- Comparisons ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(0, 0, 1), (1, 0, 1), (5, 0, 2 / 32), (3, 9, 598 / 4096), (9, 3, 598 / 4096), (7, 7, 1)],
)
def test_the_sign_test_is_exact(better: int, worse: int, p: float) -> None:
    assert sign_test(better, worse) == pytest.approx(p, abs=1e-12)


def test_two_reports_are_compared_case_by_case() -> None:
    before = sampled(lamp=(2, 4), chair=(4, 4), shelf=(1, 4), old=(1, 1))
    after = sampled(lamp=(4, 4), chair=(1, 4), shelf=(1, 4), new=(1, 1))
    changes = compare(before, after)
    assert [(each.name, each.before, each.after) for each in changes.better] == [("lamp", 0.5, 1.0)]
    assert [(each.name, each.before, each.after) for each in changes.worse] == [("chair", 1, 0.25)]
    assert (changes.same, changes.only_before, changes.only_after) == (1, ("old",), ("new",))
    assert changes.p == 1.0
    told = str(changes)
    assert "1 better, 1 worse, 1 alike; 58% before, 50% now; p = 1 (sign test)" in told
    assert "gone, and not compared: old; new, and not compared: new" in told
    assert compare(before, before).p == 1.0


def test_many_changes_one_way_are_no_chance() -> None:
    names = [f"case{number}" for number in range(8)]
    before = sampled(**dict.fromkeys(names, (0, 1)))
    after = sampled(**dict.fromkeys(names, (1, 1)))
    assert compare(before, after).p == pytest.approx(2 / 2**8)


# -- By pytest -----------------------------------------------------------------------------------


NUMBERS = """
import pytest
from caesura.evals import cases

@pytest.mark.parametrize("case", cases("cases.yaml"))
def test_numbers(case):
    case.check({"One": "1", "Two": "2"}[case.prompt])
"""


def test_cases_parametrise_a_test_of_pytest(tmp_path: Path) -> None:
    listed = "[{prompt: One, expected: '1', name: first}, {prompt: Two, expected: '1'}]"
    (tmp_path / "cases.yaml").write_text(listed)
    (tmp_path / "test_numbers.py").write_text(NUMBERS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    told = " ".join(ran.stdout.split())
    assert "test_numbers[first] PASSED" in told and "test_numbers[Two] FAILED" in told
    assert "1 of 1 checks fail for the case 'Two':" in told
    assert "equals: expected 1, got 2" in told


def test_it_is_loaded_only_when_it_is_named() -> None:
    code = "import sys, caesura; caesura.Agent; assert 'caesura.evals' not in sys.modules"
    code += "; assert not [each for each in sys.modules if 'runtime.evals' in each]"
    subprocess.run([sys.executable, "-c", code], check=True)
