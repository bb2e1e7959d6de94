"""Sessions of onnxruntime, for models and encoders in ONNX files (extra `onnx`). Imports no PyTorch."""

from pathlib import Path
from typing import Any

from earmark.errors import MissingExtraError, ModelFileError, reason

__all__ = ["open_session"]


def open_session(path: Path, content: bytes, *, purpose: str) -> Any:
    """A session on one thread, since recordings run in parallel ones; `purpose` is for the message about the extra.

    Weights must be in the file itself: those in other files would be checked by nothing.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(purpose, "onnx") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    # Weights in other files would be looked for in this folder, which cannot exist.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", f"{path}/none")
    try:
        # without a second attempt, which onnxruntime would print
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise ModelFileError(f"{path}: onnxruntime cannot load it: {reason(error)}") from error
