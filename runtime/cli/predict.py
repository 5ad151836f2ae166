"""`caesura predict`: its commands and their options."""

from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.errors import UsageError
from caesura.scheduler.prompt_lengths.objectives import OBJECTIVES

app = typer.Typer(
    help="Train and measure predictors of output lengths from prompts.\n\n"
    "DATA is a file of JSON lines (.jsonl or .jsonl.gz). A line is an object with the `prompt` as"
    " the engine sees it and the `tokens` of its output, or `samples`, a list for several outputs."
    " It may have a `session`, which is never divided between parts, and a `time` in seconds, by"
    " which the parts are in order. 65 % of the sessions or prompts train, 15 % choose the epoch"
    " and calibrate, and 20 % are only reported on. A predictor is a directory, which"
    " `caesura serve --length-predictor DIR` uses. It keeps no prompt.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Data = Annotated[Path, typer.Argument(metavar="DATA", help="A file of prompts and lengths.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Objective = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="l1 or mse: regression (SSJF). classes: SSJF's five. bins: LAMPS' 50 of 10 tokens."
        " listmle or margin: the order alone.",
    ),
]

Pool = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Of --model, the hidden state to use: cls, mean or last. Default: cls for an"
        " encoder, last for a causal model.",
    ),
]

Rate = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="Learning rate. Default: 0.1 linear, 0.001 small encoder, 0.00003 --model.",
    ),
]


@app.command()
def train(
    data: Data,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The directory of the predictor.")
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="DIR",
            help="A directory with any Hugging Face encoder or causal model and its tokenizer.",
        ),
    ] = None,
    small: Annotated[
        bool,
        typer.Option("--small-encoder", help="A small encoder of hashed words, from nothing."),
    ] = False,
    linear: Annotated[
        bool, typer.Option("--linear", help="A linear model on hashed n-grams: the default.")
    ] = False,
    objective: Objective = "l1",
    pool: Pool = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the whole model.")] = 8,
    head_epochs: Annotated[
        int, typer.Option(min=0, help="Epochs of the head alone, after them.")
    ] = 0,
    batch: Annotated[int, typer.Option(min=2, help="Outputs in a step.")] = 32,
    rate: Rate = None,
    seed: Annotated[int, typer.Option(help="Seed of parts, weights and order.")] = 0,
) -> None:
    """Train a predictor, print its scores on the report part, and write it to a directory."""
    from caesura.runtime.cli import predictors

    with mistakes_told():
        if objective not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise UsageError(f"--objective must be one of {known}, got {objective!r}")
        chosen = [name for name, on in (("--small-encoder", small), ("--linear", linear)) if on]
        if len(chosen) + (model is not None) > 1:
            raise UsageError(f"choose one of --model, {' and '.join(chosen)}, got several models")
        if pool is not None and model is None:
            raise UsageError(f"--pool {pool} needs --model DIR: the other models have no choice")
        wanted = predictors.Wanted(model, small, objective, pool)
        steps = predictors.Steps(epochs, head_epochs, batch, rate, seed)
        predictors.train_and_save(data, out, wanted, steps)


@app.command()
def evaluate(
    predictor: Annotated[Path, typer.Argument(metavar="DIR", help="A predictor's directory.")],
    data: Data,
    as_json: Json = False,
) -> None:
    """Measure a predictor on data: L1, R2, classes, order, calibration and milliseconds a prompt.

    On the file that it was trained on, only the report part is used.
    """
    from caesura.runtime.cli import predictors

    with mistakes_told():
        predictors.evaluate_and_print(predictor, data, as_json)
