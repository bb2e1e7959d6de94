"""The results of the experiment on the number of sources: a table and a figure.

    python experiments/read_sources.py EVENTS SOUNDBANK [--results results]

Reads the results of `earmark reproduce` in results/urban-sed-sources and results/urban-sed; EVENTS and SOUNDBANK are
needed to count recordings. Writes results/urban-sed-sources/sources.md and figures/sources.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from fewer_sources import recording, recordings
from matplotlib.figure import Figure

from earmark.experiment import gather, load_grid
from earmark.files import written_whole
from earmark.plots import STYLE, save
from earmark.plots.style import looks
from earmark.synthesis import plan_from
from earmark.synthesis.sources import FolderBank
from earmark.tables import Cell, Column, Table, number_cell

SHARES = {"quarter": 0.25, "half": 0.5, "": 1.0}
HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", type=Path)
    parser.add_argument("soundbank", type=Path)
    parser.add_argument("--results", type=Path, default=HERE.parent / "results")
    arguments = parser.parse_args()
    bank = FolderBank(arguments.soundbank)
    counts = {name: sum(map(len, recordings(bank, share).values())) for name, share in SHARES.items()}
    published: dict[str, set[tuple[str, str]]] = {}  # class and recording, by split
    for soundscape in plan_from(arguments.events):
        sources = {(event.label, recording(event.source_file)) for event in soundscape.events}
        published.setdefault(soundscape.split, set()).update(sources)
    counts["paper"] = len(published["train"])
    for split in ("validate", "test"):
        counts[split] = sum(map(len, recordings(bank, split=split).values()))
        counts[f"{split} paper"] = len(published[split])
    scores = read_scores(arguments.results)
    out = arguments.results / "urban-sed-sources"
    table = make_table(scores, counts)
    with written_whole(out / "sources.md") as draft:
        draft.write_text("\n\n".join([f"**{table.caption}**", table.to_markdown(), table.note]) + "\n")
    save(draw(scores, counts), out / "figures" / "sources")
    print((out / "sources.md").read_text())


def read_scores(results: Path) -> dict[tuple[str, str, str], float]:
    """Dynamic F1 by evaluation, system and data set; the mean over seeds where there are several."""
    fewer, full = load_grid(HERE / "sources.toml"), load_grid("urban-sed")
    rows = gather(fewer, results / "urban-sed-sources") + gather(full, results / "urban-sed")
    scores: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if row.cell.system in fewer.systems:
            key = row.evaluation, row.cell.system, row.cell.dataset
            scores.setdefault(key, []).append(row.scores["dynamic_f1"])
    assert full.published is not None
    paper = {("table-1", name, "paper"): full.published.scores[name][3] for name in fewer.systems}
    return {key: float(np.mean(values)) for key, values in scores.items()} | paper


def make_table(scores: dict[tuple[str, str, str], float], counts: dict[str, int]) -> Table:
    columns = [Column("system", is_text=True)]
    for group, datasets in (("clean", list(SHARES)), ("authors' reference", [*SHARES, "paper"])):
        names = {name: f"{counts[name]}{' (paper)' if name == 'paper' else ''}" for name in datasets}
        columns += [Column(names[name], group) for name in datasets]
    rows = []
    for system in dict.fromkeys(system for _, system, _ in scores):
        cells = [Cell(system)]
        cells += [number_cell(scores["clean", system, name]) for name in SHARES]
        cells += [number_cell(scores["table-1", system, name]) for name in (*SHARES, "paper")]
        rows.append(tuple(cells))
    note = (
        f"Trained once on {counts['quarter']} and {counts['half']} recordings, three times on {counts['']}. Everything "
        "else is the same: events, times, labels, schedule, clips to validate and to test. These are cut from "
        f"{counts['validate']} and {counts['test']} recordings; the paper's from {counts['validate paper']} and "
        f"{counts['test paper']}."
    )
    caption = "Dynamic F1 by the number of recordings that training sounds were cut from"
    return Table(tuple(columns), tuple(rows), caption, note)


def draw(scores: dict[tuple[str, str, str], float], counts: dict[str, int]) -> Figure:
    systems = list(dict.fromkeys(system for _, system, _ in scores))
    with mpl.rc_context(STYLE):
        figure = Figure((4.6, 3.2))
        axes = figure.add_subplot()
        for system, look in looks(systems).items():
            x = [counts[name] for name in SHARES]
            y = [scores["table-1", system, name] for name in SHARES]
            axes.plot(x, y, color=look.colour, marker=look.marker, ms=look.size, label=system)
            there = counts["paper"], scores["table-1", system, "paper"]
            axes.plot(*there, color=look.colour, marker=look.marker, ms=look.size, fillstyle="none", linestyle="none")
        axes.plot([], [], color="#444444", marker="o", fillstyle="none", linestyle="none", label="the paper")
        axes.set_xscale("log", base=2)
        axes.set_xticks([counts[name] for name in (*SHARES, "paper")])
        axes.set_xticklabels([str(counts[name]) for name in (*SHARES, "paper")])
        axes.minorticks_off()
        axes.set_xlabel("recordings that training sounds were cut from")
        axes.set_ylabel("dynamic F1, authors' reference")
        axes.legend(loc="lower right")
    return figure


if __name__ == "__main__":
    main()
