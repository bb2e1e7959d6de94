"""From frame probabilities to events: thresholds, smoothing, durations.

A `Decoder` holds the decisions; `decode` takes a whole clip, `stream` a recording that arrives in pieces, with the same
events at the end. Frame k stands for the time from k * hop up to (k + 1) * hop. In this order:

1. median filter: each frame becomes the median of the frames around it, the first and last frame repeated beyond the
   ends;
2. hysteresis: an event begins with a frame at or above `threshold` and lasts while frames are at or above `low`;
3. gaps shorter than `min_gap` are closed;
4. events shorter than `min_duration` are dropped.

The confidence of an event is the largest probability of its class between its ends, after the median filter. So it is
at least the threshold, an event with confidence c is what a threshold of c would just have found, and without a filter
the most confident event of a clip has the clip's probability under max-pooling. A mean would depend on where the ends
were put.

The paper's rule is `interpolate` and then `Decoder()`: linear interpolation to the rate of the features, and 0.5.

Thresholds are tuned by `earmark.evaluation.thresholds`.
"""

from earmark.events.decoder import Decoder, DecoderStream, decode_scores
from earmark.events.files import load_decoder
from earmark.inference.interpolation import InterpolationStream, interpolate

__all__ = ["Decoder", "DecoderStream", "InterpolationStream", "decode_scores", "interpolate", "load_decoder"]
