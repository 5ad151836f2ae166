"""Table of predictors of calls left, tokens and long pauses, on recorded sessions.

python -m benchmarks.remaining_calls [--data FOLDER] [--no-trees] [--folds]

The sessions are played in order of time, and every turn is predicted before it is learned. The
first 20 % of the sessions only fill the models. Settings of the hazard model were chosen on the
part up to 60 %; the table reports on the last 40 %. Trees are trained on the first 60 % once. With
--folds they are also trained in five folds by session without regard to time, which is easier.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, quantiles

from benchmarks.evidence.tables import Table, add_option, tell
from benchmarks.remaining_calls.sessions import Recorded, Turn, read
from benchmarks.remaining_calls.stream import FEW_CALLS, Costs, Expected, Rows, play
from caesura.scheduler.policy.names import make_predictor
from caesura.scheduler.predict.forecast import LONG_PAUSE_SECONDS
from caesura.scheduler.records.accuracy import (
    calibration,
    calibration_error,
    mean_absolute_error,
    pair_accuracy,
)

TUNE = (0.2, 0.6)
REPORT = (0.6, 1.0)

DATA = Path(".cache/data/miniswe_gemini3_swebench")

COLUMNS = (
    "predictor",
    "calls: pairs",
    "MAE",
    "few left: AUC",
    "calibration error",
    "tokens: pairs",
    "MAE",
    "long pause: AUC",
)


def main() -> None:
    """Print the tables of a folder's sessions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of recorded sessions (default %(default)s)"
    )
    parser.add_argument("--no-trees", action="store_true", help="leave scikit-learn's trees out")
    parser.add_argument("--folds", action="store_true", help="train trees in five folds too")
    add_option(parser)
    asked = parser.parse_args()
    try:
        sessions = read(asked.data)
    except FileNotFoundError as error:
        parser.exit(2, f"error: {error}\n")
    rows, costs = play(sessions, make_predictor("hazard"))
    rows.update(_bounds(sessions, trees=not asked.no_trees, folds=asked.folds))
    tables = [
        _table(sessions, rows, title, part)
        for title, part in (("chosen on", TUNE), ("reported on", REPORT))
    ]
    for table in tables:
        print(f"\n{table.markdown()}")
    _print_costs(costs)
    tell(asked.tables, tables[1:])


def _table(
    sessions: Sequence[Recorded],
    rows: Mapping[str, Rows],
    title: str,
    part: tuple[float, float],
) -> Table:
    """Return what the predictors came to on a part of the sessions, which are in order of time."""
    among = range(*(round(share * len(sessions)) for share in part))
    turns = sum(len(sessions[at].turns) for at in among)
    found = [
        (name, *cells) for name, told in rows.items() if (cells := _cells(sessions, among, told))
    ]
    known = len(COLUMNS) if any(row[-1] for row in found) else len(COLUMNS) - 1
    said = f"{title} sessions {among.start} to {among.stop - 1}, {turns:,} turns"
    return Table.of(COLUMNS[:known], (row[:known] for row in found), said)


def _bounds(sessions: Sequence[Recorded], trees: bool, folds: bool) -> dict[str, Rows]:
    from benchmarks.remaining_calls import trees as others

    past = others.past_and_rest(sessions, round(REPORT[0] * len(sessions)))
    found = {"life table by first word, past": others.by_word(sessions, past)}
    if trees:
        try:
            found["trees, past"] = others.trees(sessions, past)
            if folds:
                found["trees, five folds"] = others.trees(sessions, others.folds(sessions))
        except ImportError:
            print("the trees are left out: install scikit-learn, or pass --no-trees")
    return found


def _cells(sessions: Sequence[Recorded], among: range, told: Rows) -> list[str]:
    """Return the cells of a predictor; none if it did not predict this part."""
    pairs = [
        (told[at, place], turn)
        for at in among
        for place, turn in enumerate(sessions[at].turns)
        if (at, place) in told
    ]
    if not pairs:
        return []
    left = [float(turn.left) for _, turn in pairs]
    few = [float(turn.left <= FEW_CALLS) for _, turn in pairs]
    tokens = [float(turn.tokens) for _, turn in pairs]
    take = partial(_column, pairs)
    cells = [
        f"{pair_accuracy(take('calls'), left):.3f}",
        f"{mean_absolute_error(take('calls'), left):.1f}",
        f"{pair_accuracy(take('few'), few):.3f}",
        f"{calibration_error(calibration(take('few'), few)):.3f}",
        f"{pair_accuracy(take('tokens'), tokens):.3f}",
        f"{mean_absolute_error(take('tokens'), tokens):.0f}",
    ]
    paused = [(expected, turn) for expected, turn in pairs if turn.pause is not None]
    long = [float((turn.pause or 0.0) > LONG_PAUSE_SECONDS) for _, turn in paused]
    guessed = [expected.long_pause for expected, _ in paused]
    known = len(set(long)) > 1 and any(guessed)
    cells.append(f"{pair_accuracy(guessed, long):.3f}" if known else "")
    return cells


def _column(pairs: Sequence[tuple[Expected, Turn]], name: str) -> list[float]:
    return [float(getattr(expected, name)) for expected, _ in pairs]


def _print_costs(costs: Costs) -> None:
    for name, micros in (("forecast", costs.forecasts), ("observation", costs.observations)):
        p99 = quantiles(micros, n=100)[98]
        print(f"\nmicroseconds of one {name}: mean {fmean(micros):.0f}, p99 {p99:.0f}")


if __name__ == "__main__":
    main()
