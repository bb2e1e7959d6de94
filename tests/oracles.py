"""Other people's packages that tests compare with, where importing them plainly costs too much."""

from functools import cache
from types import ModuleType

import pytest


@cache
def librosa() -> ModuleType:
    """librosa, without compiling what no test uses: in a new environment that takes a quarter of a minute."""
    import numba

    with pytest.MonkeyPatch.context() as patch:
        for name in ("guvectorize", "vectorize"):
            patch.setattr(numba, name, lambda *types, **options: lambda function: function)
        import librosa.feature

        assert librosa.load
        assert librosa.feature.melspectrogram
    return librosa
