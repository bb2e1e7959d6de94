"""Thresholds chosen from labels of clips, compared with those chosen from times, and with 0.5.

    python benchmarks/first_detector.py SOUNDBANK --out first
    earmark train first/recordings --out run-rap --recipe head --pool rap
    python benchmarks/thresholds.py first first/run run-rap [--decoders]

FIRST is a folder of `first_detector.py`, the others are runs that were trained on FIRST/recordings, with labels of
clips. Thresholds are chosen on validation clips of FIRST/recordings: from these labels, and for comparison from times,
which training did not use. Scores are those of FIRST/test, whose sounds have other sources. With --decoders, other
decoders than the plain one are compared too, each with thresholds chosen in both ways.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from earmark.counts import scores
from earmark.datasets import open_data
from earmark.detection.detector import load
from earmark.evaluation import EvaluationOptions, event, segment
from earmark.evaluation.scoring import decode_all
from earmark.evaluation.thresholds import tune_thresholds
from earmark.events import Decoder
from earmark.formats import read_labels

DECODERS = {
    "plain": Decoder(),
    "median filter 1 s": Decoder(median=1.0),
    "hysteresis, low 0.2": Decoder(low=0.2),
    "gaps 1 s, events 0.3 s": Decoder(min_gap=1.0, min_duration=0.3),
    "boxes, window 0.25 s": Decoder(boxes=0.25),
    "boxes, window 0.5 s": Decoder(boxes=0.5),
    "boxes 0.5 s, gaps 1 s": Decoder(boxes=0.5, min_gap=1.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--decoders", action="store_true")
    arguments = parser.parse_args()
    for run in arguments.runs:
        compare(arguments.first, run, DECODERS if arguments.decoders else {"plain": Decoder()})


def compare(first: Path, run: Path, decoders: dict[str, Decoder]) -> None:
    """Print the scores of a run with thresholds chosen in several ways."""
    detector = load(run)
    validation, test = open_data(str(first / "recordings"), "validate"), open_data(str(first / "test"))
    recordings, _ = detector.score_clips(validation.clips)
    tested, _ = detector.score_clips(test.clips)
    names, classes = [r.filename for r in recordings], detector.classes
    tags = validation.labels.select(names).replace(classes=classes)
    times = read_labels(first / "train-times.csv").select(names).replace(classes=classes)
    truth = test.labels.replace(classes=classes)
    durations = {r.filename: r.duration for r in tested}
    print(f"{run.name}: pool {detector.pool_name}, {len(names)} validation clips, {len(tested)} test clips")
    columns = f"{'segment F1':>10}{'P':>7}{'R':>7}{'event F1':>10}{'events':>8}"
    print(f"{'decoder':<24}{'thresholds from':<26}{columns}  thresholds")
    for name, decoder in decoders.items():
        options = EvaluationOptions(decoder=decoder)
        ways = {"0.5": decoder}
        for way, labels in (("labels of clips", tags), ("times", times)):
            ways[way] = tune_thresholds(recordings, labels, options, tuned_on="validate")
            ways[f"{way}, cautious"] = tune_thresholds(recordings, labels, options, tuned_on="validate", cautious=True)
        for way, chosen in ways.items():
            events = decode_all(tested, chosen, "middle")
            segments = scores(segment.counts(truth, events, durations=durations)).overall
            f1 = scores(event.counts(truth, events)).overall.f1
            row = f"{segments.f1:>10.3f}{segments.precision:>7.3f}{segments.recall:>7.3f}{f1:>10.3f}{len(events):>8}"
            values = chosen.threshold if isinstance(chosen.threshold, tuple) else (chosen.threshold,)
            print(f"{name:<24}{way:<26}{row}  {' '.join(f'{value:g}' for value in values)}", flush=True)


if __name__ == "__main__":
    main()
