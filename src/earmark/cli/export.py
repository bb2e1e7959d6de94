"""`earmark export`"""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import Force, Json, app
from earmark.files import json_text


@app.command()
def export(
    model: Annotated[Path, typer.Argument(metavar="RUN|MODEL", help="A run folder or a model file.")],
    out: Annotated[Path, typer.Option(help="The file to write, NAME.onnx.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Export a model to an ONNX file.

    The file converts audio to probabilities, and runs without PyTorch.

    Example: earmark export run --out model.onnx
    """
    from earmark.export import TOLERANCE, export_model

    difference = export_model(model, out, force=force)
    size = out.stat().st_size
    if as_json:
        print(json_text({"model": str(model), "out": str(out), "bytes": size, "difference": difference}))
        return
    print(f"{out}, {size / 1e6:.1f} MB")
    print(f"Largest difference from PyTorch: {difference:.1g} of at most {TOLERANCE:g}")
