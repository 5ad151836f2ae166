"""Files of state that somebody, or a full disk, has changed: they are refused, or they work."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.calibration import Calibration, CalibrationError
from caesura.scheduler.predict.facts import Facts
from caesura.scheduler.predict.forecast import About
from caesura.scheduler.predict.hazard import Hazard
from caesura.scheduler.predict.history import History
from caesura.scheduler.prompt_lengths.predictor import DESCRIPTION_FILE, Description
from caesura.scheduler.vllm.engine.sessions.history_file import HistoryFile
from tests.scheduler.world import World, make_scheduler

from .values import mutated

DEEP = 30_000
DESCRIBED = {
    "format": 1,
    "kind": "linear",
    "objective": "l1",
    "width": 1,
    "seed": 0,
    "edges": [1.0, 2.0, 4.0, 8.0],
    "spread": {"edges": [0.0, 1.0], "lengths": [[1.0, 2.0]]},
    "data": {"rows": 9},
    "scores": {"kendall": 0.5},
}


class Files:
    """Valid files in a folder, and their readers."""

    def __init__(self, folder: Path, rng: Random) -> None:
        """Write each file once as the engine does."""
        self.folder, self.rng = folder, rng
        self.pauses = folder / "pauses.json"
        self.calibration = folder / "calibration.json"
        self.learned = self._learn()
        self.measured = self._measure()

    def _learn(self) -> dict[str, Any]:
        for name, kind in (("m", Hazard), ("n", History)):
            kept = HistoryFile(str(self.pauses))
            predictor = kind(kept.predictor)
            kept.keep(predictor, name)
            for index in range(30):
                about = About(f"s{index}", "calc", index % 3, 0, Facts(context_tokens=40))
                predictor.observe_segment(about, 20 + index, True)
                predictor.observe_result("calc", 9)
                predictor.observe_pause(about.key, "calc", 3.0)
                predictor.observe_end(about, {"calc"})
            kept.predictor.expect("other", 7.0)
            kept.save()
        data: dict[str, Any] = json.loads(self.pauses.read_text())
        return data

    def _measure(self) -> dict[str, Any]:
        cost = CostModel(0.01, 1e-4, 2e-4, 1e-7, 256, 1e5, 1e5)
        steps, copies = ((8, 100, 0.01),) * 3, (("out", 32, 0.1),) * 3
        texts = ("m", "float32", "1 x cpu", "0.32.0")
        made = Calibration(*texts, 16, 8, "2026-01-01", cost, 0.1, 0.1, 0.1, steps, copies)
        data: dict[str, Any] = json.loads(json.dumps(asdict(made)))
        return data

    def _write(self, path: Path, valid: dict[str, Any]) -> str:
        """Write a changed file; returns its beginning."""
        rng, kind = self.rng, self.rng.randrange(8)
        if kind == 0:
            text = "[" * DEEP if rng.random() < 0.5 else '{"a":' * DEEP + "1" + "}" * DEEP
        else:
            data: Any = mutated(valid, rng)
            try:
                text = json.dumps(data)
            except ValueError:
                text = json.dumps(valid)
        if kind == 1:
            text = text[: rng.randrange(len(text) + 1)]
        if kind == 2:
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice(["\0", "}", '"', "e999", "9" * 400]) + text[place:]
        path.write_text(text, errors="surrogatepass")
        return text[:2000]

    def history(self) -> Iterator[str]:
        """Read learned pauses, predict with them, and save them again."""
        text = self._write(self.pauses, self.learned)
        for kind in (History, Hazard):
            kept = HistoryFile(str(self.pauses))
            predictor = kind(kept.predictor)
            kept.keep(predictor, self.rng.choice(["m", "n", "new"]))
            try:
                _use(predictor)
                kept.save()
            except Exception as error:
                yield f"{kind.__name__} with {text}\nfails: {error!r}"

    def engine(self) -> Iterator[str]:
        """Run a whole scheduler with learned pauses that were changed."""
        text = self._write(self.pauses, self.learned)
        world = World(make_scheduler(pauses=str(self.pauses), prediction="history"))
        try:
            world.session("a", range(20), "[new(1) ->", "r]", "d")
            world.session("b", range(20), "[calc(1) ->", "r]", "d")
            world.run(200)
            world.scheduler.shutdown()
        except Exception as error:
            yield f"the engine with {text}\nfails: {error!r}"

    def calibrated(self) -> Iterator[str]:
        """Read a calibration: it is refused with one sentence, or can be used."""
        text = self._write(self.calibration, self.measured)
        try:
            cost = Calibration.load(self.calibration).cost
        except CalibrationError:
            return
        except Exception as error:
            yield f"the calibration {text}\nraises {error!r}"
            return
        try:
            cost.step_seconds(100, 1000)
            json.dumps(asdict(cost))
        except Exception as error:
            yield f"the cost model of {text}\nfails: {error!r}"

    def described(self) -> Iterator[str]:
        """Read the description of a predictor of lengths from prompts."""
        folder = self.folder / "lengths"
        folder.mkdir(exist_ok=True)
        text = self._write(folder / DESCRIPTION_FILE, DESCRIBED)
        try:
            Description.read(folder)
        except ValueError:
            return
        except Exception as error:
            yield f"the description {text}\nraises {error!r}"


def _use(predictor: Any) -> None:
    for kind in ("calc", "new", ""):
        about = About("x", kind, 1, 0, Facts(context_tokens=40))
        forecast = predictor.forecast(about)
        forecast.ends_within(0)
        predictor.pause("x", kind, 1)
        predictor.observe_segment(about, 5, True)
        predictor.observe_pause("x", kind, 2.0)
        predictor.observe_end(about, {kind})
