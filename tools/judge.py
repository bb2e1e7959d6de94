"""Give verdicts on the events of a detection job by known labels, in place of a person.

    python tools/judge.py found recordings --events 100

The tutorials use it with synthetic recordings, whose labels are exact. An event is right if it overlaps one of its
class in the labels by at least half of the shorter one. Events are taken in the order of the review's queue
"stratified": the same number from each tenth of the confidence scale.
"""

import argparse
from pathlib import Path

from earmark.annotations import Label
from earmark.datasets import open_data
from earmark.reviewing.labels import write_table
from earmark.reviewing.queues import Query, select
from earmark.reviewing.source import open_source
from earmark.reviewing.state import Review


def overlaps(onset: float, offset: float, row: Label) -> bool:
    """Whether an event overlaps a labelled one by half of the shorter one."""
    if row.onset is None or row.offset is None:
        return False
    common = min(offset, row.offset) - max(onset, row.onset)
    return common >= 0.5 * min(offset - onset, row.offset - row.onset)


def judge(found: Path, data: str, events: int) -> Review:
    """Judge the first events of the queue, and write verdicts.jsonl and verdicts.csv."""
    labels = open_data(data).labels
    names = {Path(name).name: name for name in labels.filenames}
    review = Review(open_source(found))
    for k, id in enumerate(select(review, Query(order="stratified"))[:events]):
        event = review.event(id).given
        rows = labels.of(names[Path(review.recording(event.recording).name).name])
        is_right = any(row.label == event.label and overlaps(event.onset, event.offset, row) for row in rows)
        verdict = "right" if is_right else "wrong"
        review.act({"id": f"judge-{k}", "reviewer": "judge", "action": "verdict", "verdict": verdict, "events": [id]})
    write_table(review)
    return review


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("found", type=Path, help="folder of a detection job")
    parser.add_argument("data", help="the recordings, with labels")
    parser.add_argument("--events", type=int, default=100, help="how many events to judge")
    arguments = parser.parse_args()
    total = judge(arguments.found, arguments.data, arguments.events).progress()["total"]
    print(f"{total['right']} right, {total['wrong']} wrong, {total['open']} not judged")
