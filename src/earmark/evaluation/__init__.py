"""Evaluation: clips, segments and events, with counts first and ratios last.

    from earmark.evaluation import segment
    scores = segment.evaluate(reference, estimate, segment=1.0)  # tables, rows or files
    counts = segment.counts(reference, estimate, segment=1.0)    # by clip

The reference always comes before the estimate. Counts and ratios are those of `earmark.counts`, with one default
convention for division by zero. Modules, each importing only those before it:

- `base`: inputs of metrics: labels as columns, frame scores with their times
- `clip`: static scores
- `segment`: dynamic scores
- `event`: whole events
- `curves`: segments at every threshold
- `psds`: events at every threshold
- `statistics`: intervals and tests
- `blocks`: blocks of time, for intervals where a few long recordings are evaluated
- `authors`: the reference that the paper's Table I was scored against
- `references`: names matched with clips, notes on what is left out and on how far scores can be relied on
- `saved`: schemas of the files of an evaluation
- `result`: `Evaluation`, everything about one evaluated detector, in memory or in a folder
- `scoring`: `evaluate_scores` and `evaluate_events`, which make it
- `thresholds`: thresholds and other decoder settings, tuned on validation data
- `reliability`: how many detections were right, by class and confidence
- `decoders`: the decoder of a new model, chosen on its validation clips
- `chosen`: which clips of a data set to evaluate
- `evaluating`: models, and events from other programs, evaluated on a data set
- `systems`: runs grouped into systems
- `comparison`: systems compared, with tests
"""

from earmark.evaluation.comparison import Comparison
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import EvaluationOptions, evaluate_events, evaluate_scores

__all__ = ["Comparison", "Evaluation", "EvaluationOptions", "evaluate_events", "evaluate_scores"]
