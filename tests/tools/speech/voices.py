"""A stand-in for a piper voice: a real ONNX model with a voice's inputs that hums instead."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SAMPLES = 512
"""How many samples each phoneme lasts at scale 1."""


def make_voice(directory: Path, speakers: dict[str, int]) -> Path:
    """Write `voice.onnx` and `voice.onnx.json`; return the first's path.

    Every phoneme becomes a sine of its own frequency, the longer the greater the length scale;
    another speaker hums higher.
    """
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, [1, "phonemes"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    steps = [
        helper.make_node("Gather", ["scales", "one"], ["length_scale"]),
        helper.make_node("Mul", ["length_scale", "samples"], ["samples_each"]),
        helper.make_node("Range", ["zero", "samples_each", "step"], ["time"]),
        helper.make_node("Cast", ["input"], ["floats"], to=TensorProto.FLOAT),
    ]
    pitched = "floats"
    if speakers:
        inputs.append(helper.make_tensor_value_info("sid", TensorProto.INT64, [1]))
        steps += [
            helper.make_node("Cast", ["sid"], ["speaker"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["floats", "speaker"], ["pitched"]),
        ]
        pitched = "pitched"
    steps += [
        helper.make_node("Unsqueeze", [pitched, "last"], ["columns"]),
        helper.make_node("Mul", ["columns", "time"], ["phases"]),
        helper.make_node("Mul", ["phases", "frequency"], ["angles"]),
        helper.make_node("Sin", ["angles"], ["waves"]),
        helper.make_node("Reshape", ["waves", "shape"], ["output"]),
    ]
    constants = {
        "one": np.int64(1),
        "samples": np.float32(SAMPLES),
        "zero": np.float32(0),
        "step": np.float32(1),
        "frequency": np.float32(0.02),
        "last": np.array([2], np.int64),
        "shape": np.array([1, 1, 1, -1], np.int64),
    }
    graph = helper.make_graph(
        steps,
        "voice",
        inputs,
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, 1, "samples"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path = directory / "voice.onnx"
    onnx.save(model, str(path))
    symbols = ["_", "^", "$", " ", ",", ".", *"abcdefghijklmnopqrstuvwxyzæɐɑɔəɚɛɜɪŋɹʃʊʌʒθðˈˌː"]
    config = {
        "audio": {"sample_rate": 22_050},
        "espeak": {"voice": "en-us"},
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_type": "espeak",
        "phoneme_id_map": {symbol: [number] for number, symbol in enumerate(symbols)},
        "num_symbols": len(symbols),
        "num_speakers": max(1, len(speakers)),
        "speaker_id_map": speakers,
    }
    Path(f"{path}.json").write_text(json.dumps(config))
    return path
