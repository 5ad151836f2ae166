"""Boosted trees as a bound, trained on the past or on other sessions, and the life table by word.

The trees need scikit-learn, which only this benchmark uses.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.remaining_calls.sessions import Recorded, Turn
from benchmarks.remaining_calls.stream import FEW_CALLS, Expected, Rows
from caesura.scheduler.predict.facts import WORD_BUCKETS
from caesura.scheduler.predict.forecast import LONG_PAUSE_SECONDS

COUNTED_HEADS = 20
TEXT_COMPONENTS = 32
FOLDS = 5

Matrix = NDArray[np.float64]
Pick = tuple[Sequence[int], Sequence[int]]
"""The indices of sessions to train on, and of those to predict."""


def past_and_rest(sessions: Sequence[Recorded], first: int) -> list[Pick]:
    """Return a split by time: the sessions before `first` train, the others are predicted."""
    return [(range(first), range(first, len(sessions)))]


def folds(sessions: Sequence[Recorded]) -> list[Pick]:
    """Return `FOLDS` splits by session, without regard to time."""
    everyone = range(len(sessions))
    return [
        ([at for at in everyone if at % FOLDS != fold], range(fold, len(sessions), FOLDS))
        for fold in range(FOLDS)
    ]


def trees(sessions: Sequence[Recorded], picks: Sequence[Pick]) -> Rows:
    """Return what boosted trees expect; raises `ImportError` without scikit-learn."""
    rows: Rows = {}
    for train, test in picks:
        rows.update(_fitted(sessions, train, test))
    return rows


def _fitted(sessions: Sequence[Recorded], train: Sequence[int], test: Sequence[int]) -> Rows:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    known = [turn for at in train for turn in sessions[at].turns]
    asked = [(at, place) for at in test for place in range(len(sessions[at].turns))]
    heads = _common_heads(known)
    svd = TruncatedSVD(TEXT_COMPONENTS, random_state=0)
    svd.fit(_words(known))

    def table(turns: Sequence[Turn]) -> Matrix:
        return np.hstack([_numbers(turns, heads), svd.transform(_words(turns))])

    fit = table(known)
    new = table([sessions[at].turns[place] for at, place in asked])
    make = {"max_iter": 200, "learning_rate": 0.06, "random_state": 0}
    calls = HistGradientBoostingRegressor(loss="absolute_error", **make)
    calls.fit(fit, [turn.left for turn in known])
    few = HistGradientBoostingClassifier(**make)
    few.fit(fit, [turn.left <= FEW_CALLS for turn in known])
    tokens = HistGradientBoostingRegressor(**make)
    tokens.fit(fit, np.log1p([turn.tokens for turn in known]))
    paused = [at for at, turn in enumerate(known) if turn.pause is not None]
    long = np.zeros(len(asked))
    if paused:
        labels = [(known[at].pause or 0.0) > LONG_PAUSE_SECONDS for at in paused]
        pauses = HistGradientBoostingClassifier(**make).fit(fit[paused], labels)
        long = pauses.predict_proba(new)[:, 1]
    columns = (
        calls.predict(new),
        few.predict_proba(new)[:, 1],
        np.expm1(tokens.predict(new)),
        long,
    )
    return {
        row: Expected(*values)
        for row, values in zip(asked, np.stack(columns, axis=1).tolist(), strict=True)
    }


def by_word(sessions: Sequence[Recorded], picks: Sequence[Pick]) -> Rows:
    """Return the mean calls left after the last call's first word, from the training sessions."""
    rows: Rows = {}
    for train, test in picks:
        left: dict[int, list[int]] = {}
        tokens: dict[int, list[int]] = {}
        for at in train:
            for before, turn in _with_first_word(sessions[at]):
                left.setdefault(before, []).append(turn.left)
                tokens.setdefault(before, []).append(turn.tokens)
        everything = [value for values in left.values() for value in values]
        for at in test:
            for place, (before, _) in enumerate(_with_first_word(sessions[at])):
                seen = left.get(before, everything)
                few = sum(value <= FEW_CALLS for value in seen) / len(seen)
                told = tokens.get(before, [0])
                mean = sum(seen) / len(seen)
                rows[at, place] = Expected(mean, few, float(np.median(told)), 0.0)
    return rows


def _with_first_word(session: Recorded) -> list[tuple[int, Turn]]:
    """Return the turns with the first word of the call before each; -1: none."""
    found, before = [], dict[int, int]()
    word = -1
    for turn in session.turns:
        now = dict(turn.facts.heads)
        grown = [head for head, count in now.items() if count > before.get(head, 0)]
        word = grown[0] if grown else (-1 if not turn.facts.calls else word)
        found.append((word, turn))
        before = now
    return found


def _common_heads(turns: Sequence[Turn]) -> list[int]:
    counts = Counter(head for turn in turns for head, _ in turn.facts.heads)
    return [head for head, _ in counts.most_common(COUNTED_HEADS)]


def _numbers(turns: Sequence[Turn], heads: Sequence[int]) -> Matrix:
    rows = []
    for turn in turns:
        facts, counts = turn.facts, dict(turn.facts.heads)
        numbers = (
            facts.calls,
            facts.context_tokens,
            facts.seconds,
            facts.segment_tokens,
            facts.segment_mean,
            facts.result_tokens,
            facts.result_mean,
            facts.errors,
            facts.last_error,
        )
        rows.append([*numbers, *(counts.get(head, 0) for head in heads)])
    return np.array(rows, dtype=np.float64)


def _words(turns: Sequence[Turn]) -> Matrix:
    rows = np.zeros((len(turns), WORD_BUCKETS // 4))
    for row, turn in zip(rows, turns, strict=True):
        row[[word % len(row) for word in turn.facts.words]] = 1.0
    return rows
