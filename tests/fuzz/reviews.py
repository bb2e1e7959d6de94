"""The journal of a review, with crafted actions or damaged bytes; what it says becomes labels, queues and counts."""

import json
from pathlib import Path
from random import Random

from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged, damaged_json

_EVENT = {"id": "e1", "recording": "a.wav", "label": "owl", "onset": 1.0, "offset": 2.0, "confidence": 0.5}
_OTHER = {"id": "e2", "recording": "a.wav", "label": "dog", "onset": 5.0, "offset": 6.0}
_ACTIONS = (
    {"action": "verdict", "verdict": "right", "events": [_EVENT], "label": "eagle", "onset": 0.5, "offset": 2.5},
    {"action": "verdict", "verdict": "wrong", "events": [_EVENT, _OTHER]},
    {"action": "verdict", "verdict": "unsure", "events": [_OTHER], "settles": True},
    {"action": "add", "recording": "a.wav", "label": "wren", "onset": 7.0, "offset": 8.0},
    {"action": "stretch", "recording": "a.wav", "onset": 0.0, "offset": 4.0, "empty": True},
    {"action": "checked", "recording": "a.wav", "checked": True},
    {"action": "note", "recording": "a.wav", "text": "wind", "event": "e1"},
    {"action": "undo", "target": "n0"},
    {"action": "redo", "target": "n0"},
)


@reader
def make(rng: Random) -> Case:
    """A journal in which some lines, or its bytes, are damaged."""
    lines, notes = [], []
    for number in range(rng.randint(1, 12)):
        line = {"id": f"n{number}", "time": "2026-01-01T00:00:00Z", "reviewer": "ada", **rng.choice(_ACTIONS)}
        if rng.random() < 0.4:
            text, note = damaged_json(rng, line)
            notes.append(f"line {number}: {note}")
        else:
            text = json.dumps(line)
        lines.append(text)
    content = "\n".join(lines).encode(errors="surrogatepass") + b"\n"
    if rng.random() < 0.3:
        content, note = damaged(rng, content)
        notes.append(note)
    write("review/verdicts.jsonl", content)
    return Case("; ".join(notes) or "nothing", run, keeps=["review/verdicts.jsonl"])


def run() -> None:
    """Derive everything from the journal."""
    from earmark.formats.columns import lay_out
    from earmark.reviewing.labels import label_table, verified_table
    from earmark.reviewing.queues import Query, explain, select
    from earmark.reviewing.source import Given, Recording, Source
    from earmark.reviewing.state import Review

    recording = Recording(0, "a.wav", Path("a.wav"), 10.0)
    given = [Given(e["id"], 0, e["label"], e["onset"], e["offset"], e.get("confidence")) for e in (_EVENT, _OTHER)]
    review = Review(Source("job", "found", Path("review"), [recording], given, ("owl", "dog")))
    table = label_table(review)
    assert all(0 <= row.onset < row.offset <= 1e9 for row in table if row.onset is not None)
    if table.filenames:
        lay_out(table)
    verified_table(review, only_right=False)
    chosen = select(review, Query("informative", status="all"))
    assert sorted(chosen) == sorted(review.events)
    for id in chosen:
        explain(review, review.event(id))
    total = review.progress()["total"]
    assert sum(total.values()) == len(review.events), total
