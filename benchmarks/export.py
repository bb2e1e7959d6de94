"""A minute of sound through the paper's network: the exported file in onnxruntime against PyTorch, on one thread.

    python benchmarks/export.py [--json FILE]

A second file is exported with `LogMel`, whose Fourier transform becomes ONNX's DFT. All variants are timed in turn for
several rounds, of which the fastest is reported. Probabilities are compared with PyTorch's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from measuring import in_turns

from earmark import export
from earmark.detector import Detector
from earmark.features import FeatureConfig, LogMel
from earmark.inference.torch_scorer import TorchScorer
from earmark.networks import create_network
from earmark.pooling import create_pool

SECONDS, BLOCK, ROUNDS = 60, 20, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    features = FeatureConfig(scaling="fixed")
    detector = Detector(
        [str(k) for k in range(10)], features, create_network("cnn", 128), create_pool("rap", 10)
    ).eval()
    norm = detector.network.get_submodule("norm0")
    norm.get_buffer("running_mean").fill_(-40.0)  # about what features are, so that no probability is 0 or 1
    norm.get_buffer("running_var").fill_(400.0)
    logmel, torch_scorer = LogMel(features), TorchScorer(detector, device="cpu")
    plain = export._Exported(detector)
    plain.front = logmel

    def eager(x: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(detector(logmel(torch.from_numpy(x)[None])).dynamic[0].numpy())

    runs = {
        "PyTorch, eager": eager,
        "TorchScorer": torch_scorer.score,
        "onnxruntime, DFT": session(plain, torch_scorer.least_samples),
        "onnxruntime, products (as exported)": session(export._Exported(detector), torch_scorer.least_samples),
    }
    blocks = np.random.default_rng(0).normal(0, 0.1, (SECONDS // BLOCK, BLOCK * features.rate)).astype(np.float32)
    seconds = in_turns({name: partial(run_all, run, blocks) for name, run in runs.items()}, ROUNDS)
    figures = {
        name: {
            "seconds": round(min(times), 4),
            "times_real_time": round(SECONDS / min(times)),
            "against_eager": round(min(seconds["PyTorch, eager"]) / min(times), 2),
            "difference": float(np.abs(runs[name](blocks[0]) - eager(blocks[0])).max()),
        }
        for name, times in seconds.items()
    }
    for name, row in figures.items():
        print(f"{name:36}", "  ".join(f"{key} {value:g}" for key, value in row.items()))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


def run_all(run: Callable[[np.ndarray], object], blocks: np.ndarray) -> None:
    for block in blocks:
        run(block)


def session(whole: export._Exported, least: int) -> Callable[[np.ndarray], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = export._convert(whole, least).SerializeToString()
    made = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda x: made.run(["dynamic"], {"samples": x[None]})[0][0]


if __name__ == "__main__":
    main()
