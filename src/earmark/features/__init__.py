"""Sound to log-mel frames: (bags, samples) to (bags, bands, frames), in decibels.

`FeatureConfig` holds the settings; `LogMel` computes features on a CPU or a GPU. Values equal those of librosa's
`melspectrogram` and `power_to_db` up to rounding.

Which scaling
-------------
"clip", the paper's, is relative to the clip's maximum: values lie in [-range_db, 0], and the loudness of the clip is
lost. It suits clips of a few seconds. In a long recording every frame would depend on the loudest one, which may be an
hour away. **Long recordings need "fixed"**, which is relative to the same level for every recording: a frame depends
only on the sound around it, and blocks have exactly the features of the whole.

Silence
-------
"clip" gives 0 everywhere for a clip of zeros, as librosa does: every frame equals the maximum. "fixed" gives
-range_db. Neither gives NaN or infinity, and gradients of silence are 0.
"""

from earmark.features.config import FeatureConfig, mel_matrix
from earmark.features.logmel import LogMel

__all__ = ["FeatureConfig", "LogMel", "mel_matrix"]
