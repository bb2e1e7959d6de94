"""Export of a detector to ONNX.

    samples (bags, samples), float32     mono, at the model's rate; any number of bags of equal length
    dynamic (bags, frames', classes)     a probability per output frame and class
    static  (bags, classes)              pooled by the model's operator over the whole bag

The file includes feature extraction, with the Fourier transform as two matrix products, which are much faster than
onnxruntime's transform (`benchmarks/export.py`), or the encoder with its weights. A model with an encoder takes at most
a window, `window` seconds, at once. The file is written only after onnxruntime has reproduced PyTorch's output. Its
metadata are the attributes of `earmark.inference.onnx_scorer.OnnxScorer`, and the encoder's card.
"""

import copy
import hashlib
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from earmark.checkpoint import model_file, read_model_info
from earmark.detector import Detector
from earmark.encoders import EncoderFeatures
from earmark.encoders.base import card_of
from earmark.encoders.features import Features, encoder_of, front_end, trainable_encoder
from earmark.encoders.frontend import FrontEnd, FrontEndConfig, emphasised, mel_filters, scaled, to_decibels
from earmark.encoders.mn04 import MobileNetEncoder
from earmark.encoders.mobilenet import FrameEmbedder
from earmark.errors import ArgumentError, DataError, MissingExtraError
from earmark.features import FeatureConfig, LogMel, mel_matrix
from earmark.features.logmel import pad
from earmark.files import json_text, make_folder, written_whole
from earmark.inference.onnx_scorer import FORMAT, sealed
from earmark.inference.torch_scorer import TorchScorer, load_scorer
from earmark.ownership import owned

__all__ = ["export_model", "export_onnx"]

TOLERANCE = 1e-4
"""Largest difference between onnxruntime's and PyTorch's probabilities in a file that is kept."""
_ATTRIBUTES = ("classes", "rate", "hop_samples", "n_fft", "padding", "reduction", "context", "window", "overlap")
_AXES = (("bags", "samples"), ("bags", "frames", "classes"), ("bags", "classes"))


def export_model(model: str | Path, path: str | Path, *, force: bool = False) -> float:
    """Write the detector of a model file or run folder as an ONNX file; see `export_onnx`."""
    model = model_file(Path(model))
    info = read_model_info(model)
    scorer = load_scorer(model, device="cpu")
    about = {name: info.get(name) for name in ("network", "pool", "provenance", "decoder")}
    return export_onnx(
        scorer.detector, path, window=scorer.window, fingerprint=scorer.fingerprint, about=about, force=force
    )


def export_onnx(
    detector: Detector,
    path: str | Path,
    *,
    window: float = 10.0,
    fingerprint: str | None = None,
    about: dict[str, Any] | None = None,
    force: bool = False,
) -> float:
    """Write a detector as an ONNX file, and check that both give the same probabilities.

    A file from an earlier export is replaced if this one succeeds; any other file only with `force`. `window` and
    `fingerprint`, by default the file's digest, are those of an `earmark.inference.scorer.Scorer`. `about` has further
    metadata as JSON values, usually `network`, `pool`, `provenance` and `decoder`. Returns the largest difference
    between onnxruntime's and PyTorch's probabilities, at most `TOLERANCE`.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ArgumentError(f"expected a file name that ends in .onnx, got {path}")
    make_folder(path.parent)
    with owned(path.parent, files=[path], force=force):
        detector = copy.deepcopy(detector).cpu().eval()
        scorer = TorchScorer(detector, window=window, device="cpu")
        model = _convert(_Exported(detector), scorer.least_samples)
        content = model.SerializeToString()
        metadata = {
            "pool": {"name": detector.pool.name},
            "provenance": {},
            **(about or {}),
            "version": FORMAT,
            "written_by": version("earmark"),
            **{name: getattr(scorer, name) for name in _ATTRIBUTES},
            "fingerprint": fingerprint or hashlib.sha256(content).hexdigest()[:16],
            "features": detector.features.to_dict(),
        }
        if isinstance(detector.features, EncoderFeatures):  # the file contains its weights, so their licence too
            card = card_of(detector.features.encoder)
            metadata["encoder"] = asdict(encoder_of(detector.features).card if card is None else card[0])
        model.metadata_props.add(key="earmark", value=json_text(metadata))
        content = sealed(model.SerializeToString())
        difference = _check(content, detector, scorer.least_samples)
        with written_whole(path) as draft:
            draft.write_bytes(content)
        return difference


class _Exported(nn.Module):
    """The exported module: (bags, samples) -> (bags, frames', classes) and (bags, classes)."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.front = _product_front_end(detector.features)
        self.detector = copy.deepcopy(detector)
        for module in list(self.detector.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.GRU) and _OnnxGRU.supports(child):
                    setattr(module, name, _OnnxGRU(child))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        output = self.detector(self.front(samples))
        return output.dynamic, output.static


def _product_front_end(features: Features) -> nn.Module:
    """The front end in operations that ONNX has: (bags, samples) to (bags, bands, frames)."""
    if isinstance(features, FeatureConfig):
        return _ProductLogMel(features)
    if features.train_encoder:
        front_end = trainable_encoder(features.encoder).front_end
        return nn.Sequential(_ProductFrontEnd(front_end, front_end.hop_samples), _Decibels())
    encoder = encoder_of(features)
    if not isinstance(encoder, MobileNetEncoder):
        raise ArgumentError(
            f"a model with the encoder {features.encoder!r} cannot be exported: expected an encoder that is a network "
            "of PyTorch, such as mn04"
        )
    return _ProductEncoder(encoder.module(), features.hop_samples)


class _ProductLogMel(nn.Module):
    """`LogMel` with the Fourier transform as two matrix products."""

    def __init__(self, config: FeatureConfig) -> None:
        super().__init__()
        self.config = config
        self.bands = _ProductBands(LogMel(config).window, config.hop_samples, mel_matrix(config), power=config.power)

    def forward(self, samples: Tensor) -> Tensor:
        c = self.config
        levels = 10.0 * torch.log10(self.bands(pad(samples, c)).clamp_min(c.amin))
        reference = levels.amax((1, 2), keepdim=True) if c.scaling == "clip" else c.reference_db
        return (levels - reference).clamp_min(-c.range_db).transpose(1, 2)


class _ProductEncoder(nn.Module):
    """A network of an encoder, whose front end has the Fourier transform as two matrix products."""

    def __init__(self, embedder: FrameEmbedder, hop_samples: int) -> None:
        super().__init__()
        self.embedder = copy.deepcopy(embedder)  # onnxruntime folds batch normalisation itself
        self.embedder.front = _ProductFrontEnd(embedder.front.config, hop_samples)  # type: ignore[assignment]

    def forward(self, samples: Tensor) -> Tensor:
        return self.embedder(samples).transpose(1, 2)  # type: ignore[no-any-return]


class _ProductFrontEnd(nn.Module):
    """`earmark.encoders.frontend.FrontEnd` with the Fourier transform as two matrix products.

    Samples after the last multiple of `hop_samples` are ignored.
    """

    def __init__(self, config: FrontEndConfig, hop_samples: int) -> None:
        super().__init__()
        self.hop_samples = hop_samples
        self.reach = config.win_samples // 2
        self.rest = config.n_fft - config.win_samples
        window = F.pad(FrontEnd(config).window, (0, self.rest))
        self.bands = _ProductBands(window, config.hop_samples, mel_filters(config))

    def forward(self, samples: Tensor) -> Tensor:
        whole = samples.shape[1] // self.hop_samples * self.hop_samples
        samples = samples.index_select(1, torch.arange(whole))
        x = F.pad(emphasised(samples), (self.reach, self.reach), mode="reflect")
        return scaled(self.bands(F.pad(x, (0, self.rest)))).transpose(1, 2)


class _Decibels(nn.Module):
    """Converts levels of a front end to decibels, as `earmark.encoders.features.EncoderLogMel` does."""

    def forward(self, levels: Tensor) -> Tensor:
        return to_decibels(levels)


class _ProductBands(nn.Module):
    """Energies in mel bands: (bags, samples) to (bags, frames, bands), with two products as Fourier transform.

    A frame of n = a b samples is a matrix, sample b i + j in row i and column j. Bin k + a l is the sum over j of
    exp(-2 pi i j (k + a l) / n) y_kj, where y_kj is the sum over i of exp(-2 pi i i k / a) x_ij. Rows k up to a / 2 are
    enough: bins n - k of a real signal have the energy of bins k. The mel filters are reordered to match the bins.

    `window` is (n,), `filters` (bands, n // 2 + 1); `power` is the exponent of magnitudes.
    """

    window: Tensor
    first: Tensor
    second: Tensor
    mel: Tensor

    def __init__(self, window: Tensor, hop_samples: int, filters: npt.NDArray[Any], *, power: float = 2.0) -> None:
        super().__init__()
        self.hop_samples, self.power = hop_samples, power
        self.n = n = len(window)
        # fewest multiplications: a for the first product, 2 n / a for the second
        self.a = a = min((d for d in range(1, n + 1) if n % d == 0), key=lambda d: d + 2 * n / d)
        self.b = b = n // a
        rows, j = np.arange(a // 2 + 1), np.arange(b)
        bins = rows[:, None] + a * j  # (rows, b)
        angle = 2 * np.pi * (np.outer(rows, np.arange(a)) % a / a)
        first = np.stack([np.cos(angle), -np.sin(angle)], axis=1).reshape(-1, a)  # real, imaginary part of each row
        angle = 2 * np.pi * (j[:, None] * bins[:, None] % n / n)  # (rows, b in, b out)
        second = np.block([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        mirrored = np.minimum(bins, n - bins).ravel()
        mel = np.zeros((bins.size, len(filters)))
        each, where = np.unique(mirrored, return_index=True)  # bins that occur twice count once
        mel[where] = filters.T[each]
        tables = {"first": first, "second": second, "mel": mel, "window": window.reshape(a, b)}
        for name, table in tables.items():
            self.register_buffer(name, torch.as_tensor(table, dtype=torch.float32))

    def forward(self, samples: Tensor) -> Tensor:
        bags = samples.shape[0]
        frames = (samples.shape[1] - self.n) // self.hop_samples + 1
        # Gather frames from pieces of gcd(hop, n) samples rather than sample by sample.
        piece = math.gcd(self.hop_samples, self.n)
        pieces = samples[:, : (frames - 1) * self.hop_samples + self.n].reshape(bags, -1, piece)
        places = torch.arange(frames)[:, None] * (self.hop_samples // piece) + torch.arange(self.n // piece)
        x = pieces.index_select(1, places.flatten()).reshape(bags, frames, self.a, self.b)
        y = (self.first @ (x * self.window)).reshape(bags, frames, -1, 2 * self.b)
        z = y.transpose(1, 2) @ self.second  # (bags, rows, frames, real parts and imaginary parts)
        z = z * z
        s = (z[..., : self.b] + z[..., self.b :]).transpose(1, 2).reshape(bags, frames, -1)
        if self.power != 2:
            s = s.pow(self.power / 2)
        return s @ self.mel


class _OnnxGRU(nn.Module):
    """A GRU of one layer and direction as ONNX's operator; PyTorch's exporter fails on one of dynamic length."""

    w: Tensor
    r: Tensor
    b: Tensor

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        self.hidden = gru.hidden_size
        state = gru.state_dict()

        def reordered(name: str) -> Tensor:
            """A parameter with ONNX's order of gates."""
            gates: Tensor = state[f"{name}_l0"].unflatten(0, (3, -1))
            return gates[[1, 0, 2]].flatten(0, 1)

        # the first axis is the direction, of which there is one
        self.register_buffer("w", reordered("weight_ih")[None])
        self.register_buffer("r", reordered("weight_hh")[None])
        self.register_buffer("b", torch.cat([reordered("bias_ih"), reordered("bias_hh")])[None])

    @staticmethod
    def supports(gru: nn.GRU) -> bool:
        return gru.num_layers == 1 and gru.batch_first and gru.bias and not gru.bidirectional

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        y = torch.onnx.ops.symbolic(
            "GRU",
            (x.transpose(0, 1), self.w, self.r, self.b),
            {"hidden_size": self.hidden, "linear_before_reset": 1},
            dtype=x.dtype,
            shape=(x.shape[1], 1, x.shape[0], self.hidden),
        )
        return y[:, 0].transpose(0, 1), None


def _convert(module: _Exported, least: int) -> Any:
    """Convert the module to ONNX, without the exporter's annotations, which contain local paths."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("exporting", "onnx") from error
    example = torch.zeros(2, 24 * least)  # a dimension that is 1 in the example would be constant
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=["samples"],
                output_names=["dynamic", "static"],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},),
                custom_translation_table={torch.ops.aten.sort.stable: _sorted},
            )
    except torch.onnx.OnnxExporterError as error:
        parts = f"network {type(module.detector.network).__name__}, pool {module.detector.pool.name!r}"
        raise ArgumentError(f"PyTorch cannot write this detector ({parts}) as ONNX: {_reason(error)}") from error
    assert program is not None
    model = program.model_proto
    graph = model.graph
    for thing in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer, graph):
        del thing.metadata_props[:]
        thing.doc_string = ""
    del graph.value_info[:]  # intermediate shapes, with generated names
    for value, names in zip((*graph.input, *graph.output), _AXES, strict=True):
        for axis, name in zip(value.type.tensor_type.shape.dim, names, strict=True):
            if axis.HasField("dim_param"):
                axis.dim_param = name
    onnx.checker.check_model(model)
    return model


def _sorted(x: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
    """PyTorch's stable sort, for operators that rank frames: ONNX's TopK keeps the order of equal values too."""
    from onnxscript import opset18

    op: Any = opset18  # its type hints are too narrow
    values = op.Cast(x, to=1)  # float32: onnxruntime does not sort bytes
    return op.TopK(values, op.Shape(values, start=dim, end=dim + 1), axis=dim, largest=int(descending), sorted=1)


def _reason(error: BaseException) -> str:
    """The first line of the root cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().split("\n")[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings, which are about PyTorch itself and optional packages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@torch.inference_mode()
def _check(content: bytes, detector: Detector, least: int) -> float:
    """The largest difference between file and detector, over batches of several sizes; an error if too large."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    front = front_end(detector.features)
    rng = np.random.default_rng(0)
    worst = 0.0
    sizes = [(1, least), (2, 2 * least + 1), (3, 7 * least - 5)]
    if isinstance(detector.features, EncoderFeatures):
        sizes.append((1, detector.features.window_samples))
    for bags, n in sizes:
        envelope = 10.0 ** np.linspace(-3, 0, n)  # quiet to full scale
        samples = (0.3 * envelope * rng.standard_normal((bags, n))).astype(np.float32)
        expected = detector(front(torch.from_numpy(samples)))
        outputs = session.run(["dynamic", "static"], {"samples": samples})
        for p, q in zip(outputs, (expected.dynamic.numpy(), expected.static.numpy()), strict=True):
            worst = max(worst, float(np.abs(p - q).max()) if p.shape == q.shape else math.inf)
    if not worst <= TOLERANCE:  # also true for NaN
        raise DataError(
            f"onnxruntime and PyTorch differ by {worst:.2g} on the same audio, more than {TOLERANCE:g}; nothing written"
        )
    return worst
