"""Evaluations of agents: cases, checks, samples, and what came of them.

report = await evaluate(agent, cases("prices.yaml"), samples=5)
print(report)
"""

from caesura.runtime.evals.case import Case, Check, Checked, Given, Verdict
from caesura.runtime.evals.checks import (
    Calls,
    Contains,
    Equals,
    Judge,
    Judgement,
    Matches,
    Valid,
    Within,
)
from caesura.runtime.evals.comparison import Change, Comparison, compare
from caesura.runtime.evals.evaluation import Evaluation, evaluate
from caesura.runtime.evals.files import cases
from caesura.runtime.evals.report import CaseResult, Report, Sample

__all__ = [
    "Calls",
    "Case",
    "CaseResult",
    "Change",
    "Check",
    "Checked",
    "Comparison",
    "Contains",
    "Equals",
    "Evaluation",
    "Given",
    "Judge",
    "Judgement",
    "Matches",
    "Report",
    "Sample",
    "Valid",
    "Verdict",
    "Within",
    "cases",
    "compare",
    "evaluate",
]
