"""From frame probabilities to events.

`Decoder` holds the settings; `decode` takes a whole clip, `stream` a recording that arrives in pieces, with the same
result. Frame k stands for the time from k * hop up to (k + 1) * hop. Decoding has five steps:

1. median filter, with the first and last frame repeated beyond the ends;
2. boxes, if requested: means between change points replace the probabilities (`earmark.events.boxes`);
3. hysteresis: an event starts with a frame at or above `threshold` and lasts while frames are at or above `low`;
4. gaps shorter than `min_gap` are closed;
5. events shorter than `min_duration` are dropped.

The confidence of an event is the largest probability of its class within the event, after the median filter and the
boxes. So an event with confidence c would just be detected with a threshold of c, and without either the highest
confidence in a clip is the clip's probability under max pooling. A mean over the event would depend on its ends.

The paper's rule is linear interpolation to the rate of the features and `Decoder()`, a threshold of 0.5. Thresholds are
tuned by `earmark.evaluation.thresholds.tune_thresholds`.
"""

from earmark.events.decoder import Decoder, DecoderStream, decode_scores, describe, load_decoder
from earmark.inference.interpolation import InterpolationStream, interpolate

__all__ = [
    "Decoder",
    "DecoderStream",
    "InterpolationStream",
    "decode_scores",
    "describe",
    "interpolate",
    "load_decoder",
]
