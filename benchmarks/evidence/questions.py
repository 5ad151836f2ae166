"""Every question that the docs answer with figures: one result each, and the command that makes it.

A result is made by a command of its own, which writes its tables at the end (`--tables`). What it
depends on are the files that its module imports, within some rooms, and what is named beside.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.evidence.depends import ROOT, digests, files_of

Kind = Literal["counted", "simulated", "timed", "gpu"]

POLICY = ("benchmarks", "intercept", "scheduler")
SIMULATED = (*POLICY, "simulator")
SERVED = (*POLICY, "runtime", "stores", "tools")

SCHEDULER = "caesura.scheduler.vllm"
"""The scheduler class, which engines import by its name."""
AGENT_RUNS = "benchmarks/data/agent_runs.jsonl.gz"
BUNDLED = "src/caesura/models/caesura-tiny/*"


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and how its result is made.

    `counted`: exact whatever the machine; `simulated`: on a virtual clock, exact too; `timed`:
    only worth something on a machine that does nothing else; `gpu`: timed on a GPU. `{runs}` in
    the command is a folder for what it keeps of single runs, so that it goes on where it stopped.
    `minutes` is a guess for two cores. `rooms` are the folders whose files count where the command
    imports them; `beside` are modules that it imports by name; `data` are further files, as globs.
    `about` says what the figures are, in a sentence or two above the tables. `page` shows them, in
    `docs/study`.
    """

    name: str
    asks: str
    command: str
    minutes: float
    kind: Kind
    about: str
    seeds: tuple[int, ...] = ()
    rooms: tuple[str, ...] = SIMULATED
    beside: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    page: str = "evidence.md"

    @property
    def module(self) -> str:
        """Return the module that the command runs."""
        words = self.command.split()
        return words[words.index("-m") + 1]

    @property
    def typed(self) -> str:
        """Return the command as a person types it, without where runs are kept."""
        return self.command.replace(" --runs {runs}", "")

    def files(self) -> list[Path]:
        """Return the files that the figures depend on."""
        package = ROOT.joinpath(*self.module.split(".")).is_dir()
        module = f"{self.module}.__main__" if package else self.module
        return files_of((module, *self.beside), self.rooms, self.data)

    def digests(self) -> dict[str, str]:
        """Return what these files are like today, by room."""
        return digests(self.files())


GPTJ = "GPT-J-6B on a simulated A100 with 40 GB"
MIX = f"InferCept's six tools (its Table 1) as Poisson arrivals, on {GPTJ}, drained"
RANDOM_25M = "A Llama of 25 M random parameters on vLLM's CPU engine, on one thread"
BUSY_MIX = "--rate 1.73 --blocks 96 --window 40 --warm-up 5 --tail 8 --longest 70 --runs {runs}"
HANDLING = (
    "python -m benchmarks.handling --systems stock caesura infercept lamps-infercept preserve"
    f" --rounds 3 --seed 1501 {BUSY_MIX}"
)
SIX_TOOLS = (
    f"{RANDOM_25M}; InferCept's six tools, token counts times 1/4, pauses times 0.35. Latency is in"
    " seconds, without the tools' time."
)

QUESTIONS: tuple[Question, ...] = (
    # -- Counted and simulated -------------------------------------------------------------------
    Question(
        "policies",
        "How does the default compare with stock vLLM and with the strongest baselines?",
        "python -m benchmarks.policies --chart docs/images/policies-rates.png --runs {runs}",
        10,
        "simulated",
        f"{MIX}; 2 sessions/s are about 80 % of what it can take. Arrivals span 120 s, of which the"
        " first sixth is not counted. Latency is without the tools' time.",
        seeds=(41, 42, 43),
        page="policies.md",
    ),
    Question(
        "links",
        "What does a slow link to the host cost?",
        "python -m benchmarks.policies links --runs {runs}",
        8,
        "simulated",
        f"{MIX}, at 2 sessions/s. The link's rate is that of both directions together.",
        seeds=(41, 42, 43),
        page="policies.md",
    ),
    Question(
        "competition",
        "Is the default worse where copies slow the steps?",
        "python -m benchmarks.policies competition --runs {runs}",
        20,
        "simulated",
        f"{MIX}. While a copy runs, a step goes at half its speed, as on a machine whose copies and"
        " steps compete for memory. Ratios are to the default on the same sessions: above 1, the"
        " default is faster.",
        seeds=(41, 42, 43),
        page="policies.md",
    ),
    Question(
        "dominance",
        "Is the default ever the worse choice?",
        "python -m benchmarks.dominance --chart docs/images/policies-dominance.png --runs {runs}",
        60,
        "simulated",
        "Nine workloads at 50, 100 and 150 % of what their machine completes in a closed loop. A"
        " cell has the default's value, and its ratio to the best of two other rankings and of"
        " stock vLLM with offloading; bold: the goal is not met.",
        seeds=(51,),
        data=(AGENT_RUNS,),
        page="policies.md",
    ),
    Question(
        "layered",
        "What do pauses cost on models with windows or recurrent state?",
        "python -m benchmarks.layered --runs {runs}",
        40,
        "simulated",
        "Recorded coding agents, the default first and stock vLLM with offloading second.",
        seeds=(51, 52),
        data=(AGENT_RUNS,),
        page="policies.md",
    ),
    Question(
        "goodput",
        "How many sessions meet an objective under overload?",
        "python -m benchmarks.goodput --runs {runs}",
        20,
        "simulated",
        f"Question answering alone on {GPTJ}, with the objective `ttft=2,tpot=0.1`; Poisson"
        " arrivals over 100 s, of which the first sixth is not counted.",
        seeds=(61, 62, 63),
        page="policies.md",
    ),
    Question(
        "regret",
        "Does less regret mean less latency?",
        "python -m benchmarks.regret --runs {runs}",
        25,
        "simulated",
        "Spearman's rank correlation, over seven handlings, of the regret of all pauses with the"
        " mean normalized latency. The older measure took all memory as wanted.",
        seeds=(81, 82, 83),
        page="policies.md",
    ),
    Question(
        "routers",
        "What does a router lose that leaves the KV behind?",
        "python -m benchmarks.routers --chart docs/images/simulator-routers.png --runs {runs}",
        15,
        "simulated",
        f"64 replicas, each {GPTJ}: 256 sessions/s of question answering and arithmetic for 5 s.",
        seeds=(1, 2, 3),
        page="simulator.md",
    ),
    Question(
        "rollouts-simulated",
        "How many samples does a trainer get from a simulated H100?",
        "python -m benchmarks.rollouts --simulated",
        25,
        "simulated",
        "256 samples at once, 8 or 16 of each prompt, on Qwen3 32B over two H100: 2,000 tokens of"
        " prompt in the median, then 250 a turn and 500 a result; three calls of four are followed"
        " by another. Two of five calls are slow, 4 s in the median. Samples are sent one by one.",
        seeds=(2101, 2102, 2103),
    ),
    Question(
        "break-even",
        "From which pause on does swapping or discarding waste less than preserving?",
        "python -m benchmarks.breakeven --machines qwen3-32b-h100-tp2 qwen3-next-80b-h100-tp2"
        " gemma-3-27b-h100",
        1,
        "counted",
        "By the equations and the cost models of three simulated machines, beside a batch of 16"
        " requests with 1,024 tokens each.",
        page="kv-handling.md",
    ),
    Question(
        "splicing",
        "How many tokens does a follow-up compute, spliced and rendered again?",
        "python -m benchmarks.splicing",
        3,
        "counted",
        "Conversations of 8 questions over real chat templates, with 300 words of thinking in each"
        " message. Counted are the tokens of a follow-up that the prefix cache cannot find in full"
        " blocks of 16. No model runs.",
        seeds=(0, 1, 2),
        rooms=(*POLICY, "tests"),
        data=("tests/scheduler/templates/*",),
    ),
    Question(
        "planning-costs",
        "How far is the planner's fast simulation from the scheduler's?",
        "python -m benchmarks.planning.costs_error",
        5,
        "simulated",
        "Mean errors of the end of a stage and of the ends of its requests, with equal step times.",
        seeds=(0, 1, 2),
        rooms=(*SIMULATED, "planning"),
    ),
    Question(
        "papers-infercept",
        "Which figures of InferCept come out again?",
        "python -m benchmarks.papers.infercept --quick --seconds 100",
        15,
        "simulated",
        f"The published systems without prefix caches on {GPTJ}, six tools.",
        seeds=(31,),
        page="papers.md",
    ),
    Question(
        "papers-lamps-example",
        "Is LAMPS' worked example scheduled as in the paper?",
        "python -m benchmarks.papers.lamps_example",
        1,
        "counted",
        "Table 1 and Fig. 3 of the paper, in units of time.",
        rooms=POLICY,
        page="papers.md",
    ),
    Question(
        "papers-lamps",
        "Which figures of LAMPS come out again?",
        "python -m benchmarks.papers.lamps --quick --seconds 100 --figure 10",
        15,
        "simulated",
        "Quotients are LAMPS over the other system, in the same measure.",
        seeds=(1,),
        page="papers.md",
    ),
    Question(
        "papers-pastfuture",
        "Does Past-Future's Table 1 come out again?",
        "python -m benchmarks.papers.pastfuture --quick",
        5,
        "simulated",
        "Memory is what the batch holds before a step, future the peak that it will need, both in"
        " percent of the capacity; evicted is preemptions per 100 requests.",
        seeds=(1,),
        page="papers.md",
    ),
    Question(
        "papers-ssjf",
        "What does SSJF gain over FCFS, in three ways of batching?",
        "python -m benchmarks.papers.ssjf --quick",
        10,
        "simulated",
        "Mean completion time and throughput of about 120 requests a run, an eighth as long.",
        seeds=(1,),
        page="papers.md",
    ),
    Question(
        "papers-samullm",
        "Are SamuLLM's plans better than heuristics?",
        "python -m benchmarks.papers.samullm_plans --small",
        20,
        "simulated",
        "Eight simulated A100-80G; ratios above 1: the first takes longer than the second.",
        rooms=(*SIMULATED, "planning"),
        data=("planning/costs/*.json",),
        page="papers.md",
    ),
    Question(
        "remaining-calls",
        "How well are remaining calls and tokens predicted?",
        "python -m benchmarks.remaining_calls --no-trees",
        2,
        "counted",
        "500 sessions of mini-swe-agent with Gemini 3 on SWE-bench (gruckion/mini-swe-agent), in"
        " order of time. Pairs: share of pairs in the right order. Few left: at most 3 further"
        " calls; the error of calibration is of that probability. MAE is in calls, and in tokens.",
        rooms=POLICY,
        page="prediction.md",
    ),
    Question(
        "prompt-lengths",
        "How much of an output's length does its prompt tell?",
        "python -m benchmarks.prompt_lengths --models linear --sets coding-agents questions"
        " toolbench chat-models --objectives l1 classes bins listmle",
        10,
        "counted",
        "Turns of mini-swe-agent; steps of ReAct on HotpotQA; ToolBench's evaluation queries; and"
        " samples of many models in oasst-model-eval. The last fifth of each set is reported on."
        " L1 is the mean absolute error, and pairs the share of pairs in the right order.",
        seeds=(0,),
        rooms=POLICY,
        page="prediction.md",
    ),
    # -- Timed -----------------------------------------------------------------------------------
    Question(
        "handling",
        "Is the default ever the worse choice on a real engine, with the machine to itself?",
        f"{HANDLING} --loads 0.3 0.5",
        45,
        "timed",
        f"{SIX_TOOLS} Load 1 keeps an engine busy that computes nothing twice.",
        seeds=(1501, 1502, 1503),
        rooms=POLICY,
        beside=(SCHEDULER,),
    ),
    Question(
        "handling-beside",
        "And where other programs use all cores?",
        f"{HANDLING} --loads 0.3 --beside 2",
        25,
        "timed",
        f"{SIX_TOOLS} Two programs copy and sum without end beside the engine, so that copies of KV"
        " and steps compete for the cores and for memory.",
        seeds=(1501, 1502, 1503),
        rooms=POLICY,
        beside=(SCHEDULER,),
    ),
    Question(
        "handling-beside-rounds",
        "Is InferCept's own rule better beside other programs, in five more rounds?",
        "python -m benchmarks.handling --systems caesura infercept --rounds 5 --seed 1901"
        f" {BUSY_MIX} --loads 0.15 0.3 --beside 2",
        40,
        "timed",
        "As above, the default and `infercept` alone, with other sessions.",
        seeds=(1901, 1902, 1903, 1904, 1905),
        rooms=POLICY,
        beside=(SCHEDULER,),
    ),
    Question(
        "handling-light",
        "How soon comes the first token under a light load?",
        "python -m benchmarks.handling --systems stock caesura --loads 0.1 --rounds 3 --seed 1801"
        " --rate 1.73 --blocks 96 --window 120 --warm-up 5 --tail 8 --longest 180 --runs {runs}",
        16,
        "timed",
        SIX_TOOLS,
        seeds=(1801, 1802, 1803),
        rooms=POLICY,
        beside=(SCHEDULER,),
    ),
    Question(
        "handling-agents",
        "What does the default gain on recorded coding agents?",
        "python -m benchmarks.handling --workload replay --systems stock caesura"
        " --loads 0.3 0.4 --rounds 3 --seed 1601 --rate 0.8 --blocks 440 --window 60"
        " --longest 110 --runs {runs}",
        30,
        "timed",
        f"{RANDOM_25M}; runs of real coding agents, token counts scaled by 1/48. Latency is in"
        " seconds, without the tools' time.",
        seeds=(1601, 1602, 1603),
        rooms=POLICY,
        beside=(SCHEDULER,),
        data=(AGENT_RUNS,),
    ),
    Question(
        "rollouts",
        "How many samples does a trainer get in a second?",
        "python -m benchmarks.rollouts --runs {runs}",
        25,
        "timed",
        f"{RANDOM_25M}; 48 samples at once, 8 or 16 of each prompt, in KV for two fifths of their"
        " contexts. Two of five calls are slow, 0.6 s in the median and 10 s at most. TRL runs the"
        " tools of a turn one sample after the other.",
        seeds=(2101, 2102, 2103),
        rooms=POLICY,
        beside=(SCHEDULER,),
    ),
    Question(
        "simulator",
        "How near is the simulator to the real engine?",
        "python -m benchmarks.validate --rounds 3 --loads 0.35 --rate 1.73 --runs {runs}",
        12,
        "timed",
        f"{RANDOM_25M}. The same sessions served and simulated; steps take what a calibration says"
        " (`calibration`), what the run's own steps took (`steps`), or that at the machine's pace"
        " (`pace`).",
        seeds=(300, 301, 302),
        beside=(SCHEDULER,),
    ),
    Question(
        "plain",
        "What does the scheduler cost requests without tools?",
        "python -m benchmarks.plain",
        10,
        "timed",
        "The bundled model on three engines side by side, in turns. Ratios are to stock vLLM; below"
        " 1 is better but for throughput. A second stock engine shows what the machine makes.",
        seeds=(0,),
        rooms=POLICY,
        beside=(SCHEDULER,),
        data=(BUNDLED,),
    ),
    Question(
        "door",
        "What does `caesura serve` cost beside vLLM's own server?",
        "python -m benchmarks.door --rounds 20 --concurrency 64",
        5,
        "timed",
        "Two servers of the bundled model, both with Caesura's scheduler; 64 chat completions of 64"
        " tokens at once. Ratios are those of `caesura serve` to vLLM's server.",
        seeds=(0,),
        rooms=SERVED,
        beside=(SCHEDULER, "caesura.runtime.cli.serve"),
        data=(BUNDLED,),
    ),
    Question(
        "resume",
        "How soon after a tool's return does the first token come?",
        "python -m benchmarks.resume",
        2,
        "timed",
        "The bundled model, one session after the other, the KV preserved.",
        rooms=POLICY,
        beside=(SCHEDULER,),
        data=(BUNDLED,),
    ),
    Question(
        "tools",
        "What does the dispatcher cost a call?",
        "python -m benchmarks.tools --pairs 40",
        3,
        "timed",
        "Calls through the dispatcher beside bare calls of the same function.",
        rooms=("benchmarks", "tools", "runtime", "processes"),
    ),
    Question(
        "tools-beside-streams",
        "Do busy tools hold up a stream?",
        "python -m benchmarks.tools --streaming --rounds 8",
        3,
        "timed",
        "Milliseconds between the tokens of a stream over a scripted engine, beside tools that are"
        " called over and over and beside none.",
        rooms=("benchmarks", "tools", "runtime", "processes"),
    ),
    Question(
        "tracing",
        "What does tracing cost?",
        "python -m benchmarks.tracing --rounds 24",
        5,
        "timed",
        "The bundled model, 32 runs at once, in turns with the store, with OpenTelemetry, and with"
        " neither.",
        seeds=(0,),
        rooms=SERVED,
        beside=(SCHEDULER,),
        data=(BUNDLED,),
    ),
    Question(
        "journal",
        "What does the journal cost?",
        "python -m benchmarks.journal --rounds 24 --concurrency 16",
        4,
        "timed",
        "Responses of the bundled model through three applications on one engine, in turns.",
        seeds=(0,),
        rooms=SERVED,
        beside=(SCHEDULER,),
        data=(BUNDLED,),
    ),
    Question(
        "bounds",
        "What do the bounds on connections cost?",
        "python -m benchmarks.bounds --pairs 60 --requests 100",
        1,
        "timed",
        "Processor time of a request over a scripted engine, with uvicorn's own protocol and with"
        " Caesura's.",
        rooms=SERVED,
    ),
    Question(
        "histories",
        "What does it cost to compare a client's history?",
        "python -m benchmarks.histories",
        1,
        "timed",
        "Processor time of a follow-up whose messages were read before (known) and were not (new).",
        seeds=tuple(range(15)),
        rooms=POLICY,
    ),
    Question(
        "paused-sessions",
        "What do thousands of paused sessions cost a step?",
        "python -m benchmarks.paused_growth --states kept swapped discarded",
        15,
        "timed",
        "Processor time of a step, median of 300 steps, beside eight requests that decode. Bytes"
        " are what the process grew by for each session.",
    ),
    # -- On a GPU --------------------------------------------------------------------------------
    Question(
        "gpu-check",
        "What holds on a GPU, and what does it cost there?",
        "python -m benchmarks.gpu_check",
        25,
        "gpu",
        "Models of random parameters: one of the shape of an 8B Llama where times count.",
        rooms=SERVED,
        beside=(SCHEDULER, "caesura.runtime.cli.serve"),
    ),
)


def by_name(names: Iterable[str] | None = None) -> dict[str, Question]:
    """Return the questions of these names, or all; raises `LookupError` for one that is unknown."""
    known = {question.name: question for question in QUESTIONS}
    if names is None:
        return known
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LookupError(
            f"no question is named {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return {name: known[name] for name in names}
