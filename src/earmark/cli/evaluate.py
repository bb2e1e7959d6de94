"""`earmark evaluate`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from earmark.cli.app import Json, app, progress_bar
from earmark.errors import ArgumentError

__all__ = ["evaluate"]


@app.command()
def evaluate(
    model: Annotated[
        Path, typer.Argument(metavar="RUN|MODEL", help="A run folder or a model file.", show_default=False)
    ],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="As for train: a folder, a table, or NAME:PATH.", show_default=False)
    ],
    split: Annotated[str, typer.Option(help="Which clips to judge by.")] = "test",
    out: Annotated[
        Path | None, typer.Option(help="Folder for scores.json and events.tsv; the run if not given.")
    ] = None,
    segment: Annotated[float, typer.Option(help="Length of segments in seconds.")] = 1.0,
    align: Annotated[str, typer.Option(help="Where a frame's value stands: middle, or authors.")] = "middle",
    cache: Annotated[Path | None, typer.Option(help="Folder for features, as for train.")] = None,
    as_json: Json = False,
) -> None:
    """Judge a model on labelled clips: which classes are where (static), and when (dynamic).

    Example: earmark evaluate run recordings --split test
    """
    from earmark.bags import Bags, build_store
    from earmark.checkpoint import load_detector
    from earmark.cli.train import default_cache
    from earmark.datasets import open_data
    from earmark.evaluation.models import judge
    from earmark.files import make_folder, written_whole
    from earmark.formats import write_labels
    from earmark.inference import score_bags

    path = model / "model.safetensors" if model.is_dir() else model
    detector = load_detector(path)
    collection = open_data(data, split)
    if collection.classes != detector.classes:
        unknown = set(collection.classes) - set(detector.classes)
        if unknown:
            raise ArgumentError(f"the model was not trained on: {', '.join(sorted(unknown))}")
    labels = collection.labels.with_classes(detector.classes)
    store_folder = (cache or default_cache(data)) / f"{split}-{detector.features.fingerprint()}"
    with progress_bar("features", quiet=as_json) as progress:
        store = build_store(store_folder, collection.clips, detector.features, progress=progress)
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    bags = Bags(store, labels, device=device)
    clips = score_bags(detector.to(device), bags)
    judgement = judge(
        clips, labels, hop=detector.features.hop, reduction=detector.reduction, segment_length=segment, align=align
    )
    alpha = getattr(detector.pool, "alpha", None)
    result: dict[str, Any] = {
        "model": str(path),
        "data": data,
        "split": split,
        "clips": len(bags),
        "skipped": store.skipped,
        "segment": segment,
        "align": align,
        "threshold": 0.5,
        "classes": list(detector.classes),
        "alpha": None if alpha is None else alpha.tolist(),
        **judgement.to_dict(),
        "intervals": judgement.intervals(),
    }
    folder = make_folder(out or path.parent)
    with written_whole(folder / "scores.json") as draft:
        draft.write_text(json.dumps(result, indent=1))
    write_labels(judgement.estimate, folder / "events.tsv", "tsv")
    if as_json:
        print(json.dumps(result))
        return
    _tell(result, folder)


def _tell(result: dict[str, Any], folder: Path) -> None:
    console = Console(highlight=False)
    console.print(f"{result['clips']} clips of split {result['split']}")
    if result["skipped"]:
        console.print(f"{len(result['skipped'])} clips could not be read and are left out")
    table = Table(box=None, pad_edge=False)
    table.add_column("\nclass", no_wrap=True)
    for heading in ("clips\nF1", "\nP", "\nR", f"{result['segment']:g}-s segments\nF1", "\nP", "\nR", "\nerror rate"):
        table.add_column(heading, justify="right", no_wrap=True)
    static, dynamic = result["static"]["maximum"], result["dynamic"]
    rows = [(label, static["per_class"][label], dynamic and dynamic["per_class"][label]) for label in result["classes"]]
    rows.append(("average (macro)", static["macro"], dynamic and dynamic["macro"]))
    rows.append(("all together (micro)", static["overall"], dynamic and dynamic["overall"]))
    for label, clip, frames in rows:
        cells = [f"{clip[k]:.3f}" for k in ("f1", "precision", "recall")]
        cells += [f"{frames[k]:.3f}" for k in ("f1", "precision", "recall", "error_rate")] if frames else ["-"] * 4
        table.add_row(label, *cells)
    console.print(table)
    if "dynamic.f1" in result["intervals"]:
        low, high = result["intervals"]["dynamic.f1"]
        console.print(f"Segment F1, 95 % interval over clips: {low:.3f} to {high:.3f}")
    console.print(f"Scores: {folder / 'scores.json'}; events found: {folder / 'events.tsv'}", soft_wrap=True)
