"""F1 by number of verdicts: does the informative queue of `earmark review` need fewer of them than a random order?

    python benchmarks/active.py urban-sed:URBAN-SED --out active [--tagged 50] [--pool 500] [--verdicts 50 100 200 400]
                                [--orders informative random] [--draws 3] [--recipe small | --encoder mn04]
                                [--split test]

A model is trained on a few clips with tags alone. It detects events in other training clips, whose labels it does not
use, and a simulated reviewer judges these one by one in the order of a queue: right if true events of the class cover
at least half of it, otherwise wrong. After each number of verdicts, training continues from the first model, as with
`earmark train --labels verdicts.csv --from`, and the result is evaluated on the test clips: segment F1 at the
thresholds of the model. Both orders share the first model and its events; draws differ in the clips.

Embeddings of an encoder are computed once for all clips, and then read from files.

Each result is a line of results.jsonl and is not recomputed, so that the script can be interrupted and repeated. At the
end it prints, for each number of verdicts, means over draws, the gain over the first model and the difference
between the orders, with 95% intervals (t, paired by draw), which are wide for three draws.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import earmark
from earmark import audio
from earmark.annotations import LabelTable
from earmark.datasets import Collection, open_data
from earmark.detection.job import JobOptions, run_job
from earmark.encoders import load
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.reviewing.clips import with_labels
from earmark.reviewing.events import Event
from earmark.reviewing.labels import write_table
from earmark.reviewing.queues import Query, select
from earmark.reviewing.source import open_source
from earmark.reviewing.state import Review


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tagged", type=int, default=50)
    parser.add_argument("--pool", type=int, default=500)
    parser.add_argument("--verdicts", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--orders", nargs="+", default=["informative", "random"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--encoder")
    parser.add_argument("--split", default="test", help="the clips to evaluate on")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.encoder:
        arguments.encoder = embed(open_data(arguments.data), arguments.encoder, arguments.out / "embeddings")
    for draw in range(arguments.draws):
        measure(arguments, draw)
    show(read(arguments.out))


def measure(arguments: argparse.Namespace, draw: int) -> None:
    """All orders and numbers of verdicts of one draw."""
    data = open_data(arguments.data)
    training = data.split("train")
    names = np.random.default_rng(draw).permutation(sorted(clip.filename for clip in training.clips)).tolist()
    tagged, others = names[: arguments.tagged], names[arguments.tagged : arguments.tagged + arguments.pool]
    folder = arguments.out / f"draw-{draw}"
    start = weak(training.select(tagged))
    how: dict[str, Any] = {"encoder": arguments.encoder} if arguments.encoder else {"recipe": arguments.recipe}
    changes = dict(change.split("=", 1) for change in arguments.changes)
    compute = earmark.api.Compute(cache=arguments.out / "cache" / str(draw))
    first = earmark.train(start, folder / "first", resume=True, settings=changes, compute=compute, **how)
    record(arguments, draw, "none", 0, first)
    paths = [clip.sources[0].path for clip in training.select(others).clips]
    truth = {clip.sources[0].path: training.labels.of(clip.filename) for clip in training.clips}
    run_job(first.path, paths, folder / "found", JobOptions())
    for order in arguments.orders:
        job = folder / f"found-{order}"
        if not job.exists():
            shutil.copytree(folder / "found", job)
        for count in sorted(arguments.verdicts):
            if is_known(arguments.out, draw, order, count):
                continue
            table = judge(job, truth, order, count)
            joined, _ = with_labels(start, table)
            settings = {**changes, "supervision": "mixed"}
            run = earmark.train(
                joined, folder / f"{order}-{count}", recipe=first.path, resume=True, settings=settings, compute=compute
            )
            record(arguments, draw, order, count, run)


def embed(data: Collection, name: str, folder: Path) -> str:
    """Write the embeddings of all clips, and return the name of the encoder that reads them."""
    encoder = load(name)
    for clip in data.clips:
        path = clip.sources[0].path
        place = folder / path.parent.name / f"{path.stem}.npz"
        if place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        x = encoder(audio.read(path, rate=encoder.card.rate), encoder.card.rate)
        times = np.arange(len(x)) * encoder.card.hop
        np.savez(place.with_suffix(".part.npz"), times=times, embeddings=x, encoder=name)
        place.with_suffix(".part.npz").rename(place)
    return f"files:{folder}"


def weak(clips: Collection) -> Collection:
    """The same clips with tags instead of times, and every one to train on."""
    tags = {(row.filename, None, None, row.label) for row in clips.labels if row.present}
    labels = LabelTable(sorted(tags), filenames=clips.labels.filenames, classes=clips.classes)
    return replace(clips, labels=labels)


def judge(job: Path, truth: dict[Path, Any], order: str, count: int) -> Path:
    """Let the simulated reviewer continue up to so many verdicts; returns their label table."""
    review = Review(open_source(job))
    if sum(bool(event.decisions) for event in review.events.values()) > count:
        raise SystemExit(f"{job}: has more than {count} verdicts already; remove it to start again with fewer")
    while (done := sum(bool(event.decisions) for event in review.events.values())) < count:
        queue = select(review, Query(order, seed=done))[: min(25, count - done)]  # created anew every 25 verdicts
        if not queue:
            break
        for id in queue:
            event = review.event(id)
            verdict = "right" if is_right(event, truth[review.recording(event.given.recording).path]) else "wrong"
            action = {"action": "verdict", "events": [id], "verdict": verdict}
            review.act({"id": f"{order}-{id}", "reviewer": "simulated", **action})
    return write_table(review)


def is_right(event: Event, truth: Any) -> bool:
    """Whether true events of the class cover at least half of an event."""
    given = event.given
    spans = [(row.onset, row.offset) for row in truth if row.is_event and row.label == given.label]
    times = np.linspace(given.onset, given.offset, 101)
    covered = np.any([(times >= onset) & (times <= offset) for onset, offset in spans] or [np.zeros(101, bool)], axis=0)
    return bool(covered.mean() >= 0.5)


def record(arguments: argparse.Namespace, draw: int, order: str, count: int, run: Any) -> None:
    """Evaluate a run on the test clips, unless its result exists."""
    if is_known(arguments.out, draw, order, count):
        return
    clips, detector = open_data(arguments.data).split(arguments.split), earmark.load(run)
    recordings, _ = detector.score_clips(clips.clips)
    options = EvaluationOptions(decoder=detector.decoder)
    scores = evaluate_scores(recordings, clips.labels, options).to_dict()["dynamic"]["overall"]
    line = {"draw": draw, "order": order, "verdicts": count}
    line |= {name: round(scores[name], 4) for name in ("f1", "precision", "recall")}
    with (arguments.out / "results.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def is_known(out: Path, draw: int, order: str, count: int) -> bool:
    return any((r["draw"], r["order"], r["verdicts"]) == (draw, order, count) for r in read(out))


def read(out: Path) -> list[dict[str, Any]]:
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def show(results: list[dict[str, Any]]) -> None:
    """Means over draws, gains over the first model, and the difference between the first two orders."""
    f1 = {(r["order"], r["verdicts"], r["draw"]): r["f1"] for r in results}
    orders = list(dict.fromkeys(order for order, *_ in f1 if order != "none"))
    draws = sorted(draw for order, _, draw in f1 if order == "none")
    base = np.array([f1["none", 0, draw] for draw in draws])
    print(f"\nwithout verdicts: F1 {base.mean():.3f} over {len(draws)} draws; gains and differences with 95% intervals")
    heads = [f"{order:>12}  {'gain':<25}" for order in orders]
    print(f"{'verdicts':>8}  {'  '.join(heads)}  difference")
    for count in sorted({r["verdicts"] for r in results if r["verdicts"]}):
        rows = [np.array([f1.get((order, count, draw), np.nan) for draw in draws]) for order in orders]
        cells = [f"{np.nanmean(row):12.3f}  {interval(row - base):<25}" for row in rows]
        print(f"{count:8}  {'  '.join(cells)}  {interval(rows[0] - rows[1]) if len(rows) > 1 else ''}")


def interval(values: Any) -> str:
    """The mean of some draws with its 95% interval (t)."""
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return f"{known.mean():+.3f}" if len(known) else ""
    half = stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return f"{known.mean():+.3f} ({known.mean() - half:+.3f} to {known.mean() + half:+.3f})"


if __name__ == "__main__":
    main()
