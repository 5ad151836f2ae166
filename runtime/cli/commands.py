"""The commands that start an engine or look at the installation, and their options."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import (
    DEFAULT_HOST_GIB,
    AgentName,
    Formats,
    HostGib,
    Model,
    ModelOptions,
    Tools,
    TraceFile,
    TraceTitle,
    Verbose,
    VllmArgs,
    filled,
)
from caesura.runtime.cli.serve_options import ServeOptions
from caesura.scheduler.serve_options import check_flags

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run(work: Coroutine[Any, Any, Any], loop_factory: LoopFactory | None = None) -> None:
    """Run a command; print a known error as one line, without a stack trace."""
    with mistakes_told(), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(work)


def set_log_level(verbose: bool) -> None:
    """Show vLLM's log if `verbose`; vLLM reads the variable when it is imported."""
    if verbose:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")


@filled
def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    source: ModelOptions,
    tool: Tools = None,
    agent: AgentName = None,
    trace: TraceFile = None,
    trace_title: TraceTitle = None,
    verbose: Verbose = False,
) -> None:
    """Ask the model one question, and print its tool calls and the answer."""
    set_log_level(verbose)
    from caesura.runtime.cli.ask_chat import Asked, ask_once

    run(ask_once(question, Asked(source, tool, agent), trace, trace_title))


@filled
def chat(
    source: ModelOptions,
    tool: Tools = None,
    agent: AgentName = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    trace: TraceFile = None,
    trace_title: TraceTitle = None,
    verbose: Verbose = False,
) -> None:
    """Chat with a model in the terminal."""
    set_log_level(verbose)
    from caesura.runtime.cli.ask_chat import Asked, converse

    run(converse(Asked(source, tool, agent, system), trace, trace_title))


@filled
def serve(
    options: ServeOptions,
    verbose: Verbose = False,
) -> None:
    """Serve an OpenAI-style endpoint whose tools run inside the request.

    The model may also come first, as in `caesura serve MODEL -- VLLM_OPTIONS`.
    """
    set_log_level(verbose)
    with mistakes_told():
        options = replace(options, source=options.source.with_model_first())
        check_flags(options.source.vllm_args or ())
    from caesura.runtime.cli.serve import serve_model
    from caesura.runtime.server.listen import loop_factory

    run(serve_model(options), loop_factory())


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """How often cases are answered, and where the results go."""

    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="Answers per case.")] = 1
    concurrency: Annotated[int, typer.Option(min=1, help="Answers at the same time.")] = 8
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only this case; repeatable.")
    ] = None
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="MODEL", help="The model, or the server, of judges."),
    ] = None
    pass_rate: Annotated[
        float,
        typer.Option(min=0, max=1, help="A case fails if fewer of its samples pass."),
    ] = 1.0
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the results as JSON."),
    ] = None
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")
    ] = None
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare", metavar="FILE", help="Earlier results, with which these are compared."
        ),
    ] = None


@filled
def evaluate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Cases: .yaml, .json or .jsonl.")],
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            "-a",
            metavar="NAME",
            help="An agent of the configuration; or an Agent, or a function of a prompt, as"
            " module:attribute. The options of the model are for the first.",
        ),
    ],
    options: EvalOptions,
    source: ModelOptions,
    verbose: Verbose = False,
) -> None:
    """Evaluate an agent; the exit code is 1 if a case fails."""
    set_log_level(verbose)
    from caesura.runtime.cli.ask_chat import evaluated
    from caesura.runtime.evals.command import Wanted, named
    from caesura.runtime.evals.command import run as run_evaluation

    wanted = Wanted(
        file,
        options.samples,
        options.concurrency,
        options.case or (),
        options.judge,
        options.pass_rate,
        options.out,
        options.junit,
        options.compare,
    )
    with mistakes_told(), asyncio.Runner() as runner:
        subject = named(agent) if ":" in agent else evaluated(source, agent)
        if runner.run(run_evaluation(wanted, subject)):
            raise typer.Exit(1)


def calibrate(
    vllm_args: VllmArgs = None,
    model: Model = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file to write. Default: the file that `serve` reads."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure for seconds instead of most of a minute.")
    ] = False,
    host_gib: HostGib = DEFAULT_HOST_GIB,
    verbose: Verbose = False,
) -> None:
    """Measure the cost of steps on this machine, and the link to host memory."""
    set_log_level(verbose)
    from caesura.runtime.cli.calibrate import measure_model

    run(measure_model(model, output, quick, host_gib, vllm_args or []))


def demo(
    trace: TraceFile = None,
    trace_title: TraceTitle = None,
    kill_engine: Annotated[
        bool,
        typer.Option("--kill-engine", help="Kill the engine in the middle of a server's answers."),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Ask the bundled model a dozen questions at once, and show its pauses and resumes."""
    set_log_level(verbose)
    if kill_engine:
        from caesura.runtime.cli.kill_engine import show as show_death

        run(show_death())
        return
    from caesura.runtime.cli.demo import show

    run(show(trace=trace, title=trace_title))


def doctor(model: Model = None, form: Formats = None) -> None:
    """Check the installation, and print how to fix each problem.

    With --model, say how the model writes calls and thinking, and what of it is a guess.
    """
    from caesura.runtime.cli.doctor import examine

    raise typer.Exit(examine(model, form))
