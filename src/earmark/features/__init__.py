"""Sound to log-mel frames: (bags, samples) to (bags, bands, frames), in decibels.

`FeatureConfig` says how; `LogMel` does it, on a CPU or a GPU; `LogMel.stream` does it for a recording that arrives in
blocks. Values are those of librosa's `melspectrogram` and `power_to_db`, to within rounding.

Which scaling
-------------
"clip", the paper's, is relative to the clip's own maximum: values lie in [-range_db, 0], and how loud the clip was is
forgotten. It suits clips of some seconds. In a long recording every frame would depend on the loudest one, which may be
an hour away: one slammed door pushes the rest of a night below the cut, and two halves of a recording do not give the
features of the whole. **Long recordings need "fixed"**: relative to a level that is the same for every sound. Then a
frame depends on nothing but the sound around it, and blocks give exactly what the whole gives.

Silence
-------
"clip" gives 0 everywhere for a clip of zeros, as librosa does: everything is as loud as the loudest. "fixed" gives
-range_db. Neither gives NaN or infinity, and gradients of silence are 0.

Files, each importing only those before it: `config`, `logmel`.
"""

from earmark.features.config import FeatureConfig, mel_matrix
from earmark.features.logmel import LogMel, LogMelStream

__all__ = ["FeatureConfig", "LogMel", "LogMelStream", "mel_matrix"]
