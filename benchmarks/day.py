"""Detection in a day-long recording with known events, and in the clips of which it consists.

    python benchmarks/day.py [--hours 24] [--clips 1000] [--model MODEL|none] [--work DIR]
    python benchmarks/day.py --events events.csv.gz --soundbank DIR --model MODEL

Synthesises soundscapes of ten seconds, as `earmark synth` does, and joins those of the test split, repeatedly and in
random order, to one recording of --hours. `earmark detect` runs on the recording, and then on the clips. Without a
model, one is first trained on the other splits: recipe quick, scaling fixed.

Prints for both: wall time of the command, including its start; peak of its resident memory; scores of segments of one
second. Events of clips are moved to where the clips are in the recording, so that both are evaluated in the same way.
A single clip is followed by silence, but in the recording by another clip. Decisions near joints may therefore differ,
so F1 is also given without the segments there, with the share of equal decisions (segments times classes).

Clips last a whole number of output frames (of the paper's network and of recipe quick: 27, which is 31 ms more than ten
seconds), so that frames of the recording begin where those of clips do. If a frame of the model depends on a limited
part of the sound, the frame probabilities inside clips must be the same; the largest difference is printed.

Clips, recording, model and finished detections are stored in the folder --work, and reused by the next call.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from measuring import memory

from earmark import audio
from earmark.annotations import LabelTable
from earmark.cli.display import live_display
from earmark.detection.detector import load
from earmark.detection.ledger import Ledger
from earmark.evaluation.segment import evaluate
from earmark.files import make_folder, written_whole
from earmark.formats import read_labels
from earmark.inference.recordings import score_recording, score_samples
from earmark.inference.scorer import Scorer
from earmark.inference.scores import read_scores
from earmark.synthesis import Joined, Soundscape, join, open_bank, plan_from, synthesise

Samples = npt.NDArray[np.float32]

SPLIT = "test"
FRAMES, STEP, RATE = 27, 16384, 44100  # of a clip: output frames; samples of each, and per second
EDGE = 2  # segments at either end of a clip that count as near a joint
COMPARED = 100  # clips whose probabilities are compared
SCORES = ("f1", "precision", "recall", "error_rate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--clips", type=int, default=1000, help="soundscapes to make, all splits together")
    parser.add_argument("--model", default="none", help="a model file, run folder or ONNX file; none: train one")
    parser.add_argument("--epochs", type=int, default=10, help="of that training")
    parser.add_argument("--steps", type=int, default=50, help="of each of its epochs")
    parser.add_argument("--events", type=Path, help="a table of events; the recipe durations if none")
    parser.add_argument("--soundbank", type=Path, help="folder of sounds; the embedded ones if none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="threads of the detection; by default one per core")
    parser.add_argument("--work", type=Path, default=Path("day"), help="folder for everything")
    args = parser.parse_args()
    work = make_folder(args.work)
    clips = make_clips(args, work / "clips")
    model = Path(args.model) if args.model != "none" else train(clips, work / f"model-{args.epochs}x{args.steps}", args)
    joined = make_recording(clips, work / f"{args.hours:g}h-seed{args.seed}.flac", args)
    check_end(clips, joined)
    scorer = load(model, device="cpu").scorer
    jobs = work / f"found-{scorer.fingerprint[:12]}-{args.workers or 'all'}"
    whole, parts = jobs / joined.path.stem, jobs / "clips"
    costs = [detect(model, joined.path, whole, args.workers)]
    costs += [detect(model, clips / "audio" / SPLIT, parts, args.workers)]
    report(joined, costs, scorer.classes, [whole, parts])
    compare_frames(clips, joined, scorer, whole)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def make_clips(args: argparse.Namespace, folder: Path) -> Path:
    start = time.monotonic()
    bank = open_bank(args.soundbank)
    plan = plan_from(args.events or "durations", bank=bank, clips=args.clips, seed=args.seed)
    with live_display() as display:
        made = synthesise(map(lengthened, plan), folder, bank=bank, rate=RATE, on_progress=display)
    say(f"{sum(made.clips.values())} clips, {made.kept} of an earlier call: {time.monotonic() - start:.0f} s")
    return folder


def lengthened(soundscape: Soundscape) -> Soundscape:
    duration = FRAMES * STEP / RATE
    background = soundscape.background and replace(soundscape.background, event_duration=duration)
    return replace(soundscape, duration=duration, background=background)


def train(clips: Path, run: Path, args: argparse.Namespace) -> Path:
    model, log = run / "model.safetensors", run / "trained.json"
    if log.exists():
        say(f"model: {model}, of an earlier call")
        return model
    settings = {"scaling": "fixed", "epochs": args.epochs, "steps": args.steps}
    changes = ["--recipe", "quick", "--pool", "auto"]
    changes += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    say(f"training: {' '.join(changes)}")
    start = time.monotonic()
    is_started = (run / "last.ckpt").exists()
    subprocess.run(
        [*earmark("train"), str(clips), "--out", str(run), "--cache", str(args.work / "features")]
        + (["--resume"] if is_started else changes),
        check=True,
    )
    log.write_text(json.dumps(settings) + "\n")
    say(f"model: {model}, {time.monotonic() - start:.0f} s")
    return model


def earmark(command: str) -> list[str]:
    return [sys.executable, "-m", "earmark.cli", command]


def make_recording(clips: Path, path: Path, args: argparse.Namespace) -> Joined:
    """The recording, with the positions of its clips in a JSON file next to it."""
    record = path.with_suffix(".json")
    if record.exists():
        kept = json.loads(record.read_text())
        say(f"recording: {path}, of an earlier call")
        return Joined(path=path, labels=path.with_suffix(".tsv"), **kept)
    start = time.monotonic()
    with live_display() as display:
        joined = join(clips, SPLIT, duration=3600 * args.hours, seed=args.seed, out=path, on_progress=display)
    about = {key: value for key, value in asdict(joined).items() if key not in ("path", "labels")}
    with written_whole(record) as draft:
        draft.write_text(json.dumps(about))
    say(
        f"recording: {joined.duration / 3600:.2f} h, {joined.starts[-1]:,} samples, {path.stat().st_size >> 20} MiB, "
        f"{len(joined.clips)} clips ({len(set(joined.clips))} distinct), {joined.events} events: "
        f"{time.monotonic() - start:.0f} s"
    )
    return joined


def check_end(clips: Path, joined: Joined) -> None:
    """Print whether the end of the recording is its last clip."""
    about = audio.info(joined.path)
    last = audio.read(joined.path, onset=joined.starts[-2] / joined.rate)
    is_same = about.samples == joined.starts[-1] and np.array_equal(last, audio.read(clips / joined.clips[-1]))
    say(f"the last clip, read at sample {joined.starts[-2]:,} of the recording: {'the same' if is_same else 'DIFFERS'}")


def detect(model: Path, sound: Path, out: Path, workers: int | None) -> dict[str, float]:
    """Run the command in a separate process: seconds, the peak of resident memory in MiB, seconds of sound."""
    record = out / "measured.json"
    if record.exists():
        say(f"detection in {sound}: of an earlier call")
        return dict(json.loads(record.read_text()))
    shutil.rmtree(out, ignore_errors=True)  # the time of a resumed job would be too short
    command = [*earmark("detect"), str(model), str(sound), "--out", str(out), "--keep-scores"]
    command += [] if workers is None else ["--workers", str(workers)]
    say(f"detection in {sound}")
    start = last_line = time.monotonic()
    process = subprocess.Popen(command)
    peak = 0.0
    try:
        while process.poll() is None:
            peak = max(peak, memory("VmHWM", process.pid) / 2**20)
            time.sleep(0.05)
            if time.monotonic() - last_line > 60:
                last_line = time.monotonic()
                say(f"  {last_line - start:.0f} s, {peak:.0f} MiB")
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        sys.exit(f"earmark detect ended with {process.returncode}")
    seconds = time.monotonic() - start
    with Ledger(out / "ledger.sqlite", read_only=True) as ledger:
        duration = sum(entry.duration or 0.0 for entry in ledger.entries())
    measured = {"seconds": seconds, "peak": peak, "duration": duration}
    record.write_text(json.dumps(measured) + "\n")
    return measured


def report(joined: Joined, costs: list[dict[str, float]], classes: tuple[str, ...], folders: list[Path]) -> None:
    name, durations = joined.path.name, {joined.path.name: joined.duration}
    truth, streamed, alone = (read_labels(p) for p in (joined.labels, *(folder / "events.csv" for folder in folders)))
    estimates = [streamed, placed(alone, joined)]
    ratios = [
        evaluate(truth, estimate, classes=classes, durations=durations, segment=1.0).overall for estimate in estimates
    ]
    rows = [
        ("sound, hours", ".2f", [cost["duration"] / 3600 for cost in costs]),
        ("time, s", ".1f", [cost["seconds"] for cost in costs]),
        ("x real time", ".0f", [cost["duration"] / cost["seconds"] for cost in costs]),
        ("peak of resident memory, MiB", ".0f", [cost["peak"] for cost in costs]),
    ]
    rows += [(score.replace("_", " "), ".4f", [getattr(ratio, score) for ratio in ratios]) for score in SCORES]
    reference, one, other = (active(table, name, joined.duration, classes) for table in (truth, *estimates))
    inner = away_from_joints(joined)
    among = [2 * (reference & p)[inner].sum() / max(1, reference[inner].sum() + p[inner].sum()) for p in (one, other)]
    rows += [(f"f1, {EDGE} s and more from joints", ".4f", among)]
    print(f"{'':34s}{'recording':>12s}{'clips':>12s}")
    for title, style, values in rows:
        print(f"{title:34s}" + "".join(f"{format(value, style):>12s}" for value in values))
    print(f"decisions that are the same: {(one == other).mean():.2%}, there {(one == other)[inner].mean():.2%}")


def placed(events: LabelTable, joined: Joined) -> LabelTable:
    """Events of clips at their times in the recording, once for each use of a clip."""
    rows = []
    for clip, start in zip(joined.clips, joined.starts[:-1], strict=True):
        shift = start / joined.rate
        for row in events.of(Path(clip).name):
            if row.onset is not None and row.offset is not None:
                rows.append(row._replace(filename=joined.path.name, onset=row.onset + shift, offset=row.offset + shift))
    return LabelTable(rows, filenames=[joined.path.name])


def away_from_joints(joined: Joined) -> npt.NDArray[np.bool_]:
    """Whether each segment of a second is well inside a clip."""
    times = np.array(joined.starts) / joined.rate
    inner = np.ones(math.ceil(joined.duration), bool)
    for joint in times:
        inner[max(0, math.floor(joint - EDGE)) : math.ceil(joint + EDGE)] = False
    return inner


def active(table: LabelTable, name: str, duration: float, classes: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Which classes are touched by an event in each second: (seconds, classes)."""
    result = np.zeros((math.ceil(duration), len(classes)), bool)
    for row in table.of(name):
        if row.onset is not None and row.offset is not None:
            result[math.floor(row.onset) : math.ceil(row.offset), classes.index(row.label)] = True
    return result


def compare_frames(clips: Path, joined: Joined, scorer: Scorer, whole: Path) -> None:
    """Compare probabilities of the recording, and those that the command stored, with those of clips alone."""
    if scorer.context is None:
        print("frame probabilities: a frame of this model depends on all of the sound (scaling clip, or recurrent), so")
        print("clips alone and in the recording differ; train with scaling fixed to compare")
        return
    kept = read_scores(whole / "scores" / f"{joined.path.name}.npz").p
    largest = rounded = 0.0
    frames = compared = 0
    for k in np.unique(np.linspace(0, len(joined.clips) - 1, COMPARED).astype(int)):
        start, remainder = divmod(joined.starts[k] * scorer.rate, joined.rate)
        if remainder:  # the clip begins between two samples
            continue
        first, alone = inside(scorer, audio.read(clips / joined.clips[k], rate=scorer.rate), start)
        last = first + len(alone)
        streamed = np.concatenate(list(score_recording(scorer, joined.path, first=first, last=last)))
        largest = max(largest, float(np.abs(streamed - alone).max()))
        rounded = max(rounded, float(np.abs(streamed - kept[first:last]).max()))
        frames, compared = frames + len(alone), compared + 1
    reach = (scorer.context * scorer.hop_samples + scorer.n_fft) / scorer.rate
    print(f"frame probabilities inside {compared} clips, {frames} frames, {reach:.1f} s and more from their ends:")
    print(f"    largest difference, recording from clip alone      {largest:.1e}")
    print(f"    largest difference, recording from stored scores   {rounded:.1e} (stored in half precision)")


def inside(scorer: Scorer, sound: Samples, start: int) -> tuple[int, Samples]:
    """Frames of a clip that begins at sample `start` of the recording: number of the first one there, probabilities.

    If the clip does not begin with a frame of the recording, as with other networks, its first samples are cut off.
    Frames that depend on its ends are left out, and one more, because resampling differs at the ends too.
    """
    assert scorer.context is not None
    step = scorer.hop_samples * scorer.reduction
    cut = -start % step
    p = np.concatenate(list(score_samples(scorer, sound[cut:])))
    affected = -(-scorer.n_fft // scorer.hop_samples)  # feature frames that depend on the end of the sound
    edge = -(-(scorer.context + affected) // scorer.reduction) + 1
    if len(p) <= 2 * edge:
        sys.exit(f"clips of {len(p)} frames are too short to compare: a frame depends on {edge} on either side")
    return (start + cut) // step + edge, p[edge:-edge]


if __name__ == "__main__":
    main()
