"""The page's "Train again": runs `earmark.retraining` in a separate process, and follows its progress."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import deque
from itertools import count
from typing import Any

from earmark.errors import ArgumentError, EarmarkError
from earmark.reviewing.source import Source
from earmark.schema import parse_json

_LINES = 200


class Trainer:
    """Starts and stops the process, and keeps its messages."""

    command = (sys.executable, "-m", "earmark.retraining")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._state: dict[str, Any] = {"share": None, "summary": None, "error": None}
        self._lock = threading.Lock()

    def problem(self) -> str | None:
        """Why the model cannot be trained again; None if it can."""
        model = self.source.model
        if self.source.kind != "job" or model is None:
            return "there is no model to retrain; review a detection job"
        if not model.is_file() or not model.with_name("config.toml").is_file():
            return f"the model {model} is no longer there, or has no config.toml next to it"
        return None

    def status(self) -> dict[str, Any]:
        """Whether the process is running, its progress and its messages."""
        with self._lock:
            running = self._process is not None and self._process.poll() is None
            return {"running": running, "lines": list(self._lines), **self._state}

    def start(self, data: str) -> None:
        """Train again with labelled clips of a folder or data set."""
        problem = self.problem()
        if problem is not None:
            raise ArgumentError(problem)
        if not data.strip():
            raise ArgumentError("data: expected the folder of the labelled clips that the model was trained on")
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                raise ArgumentError("training is running already")
            folder = self.source.folder
            out = next(place for n in count(1) if not (place := folder / f"again-{n}").exists())
            self._lines.clear()
            self._state = {"share": None, "summary": None, "error": None}
            command = [*self.command, str(folder), data.strip(), str(out)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self._thread = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Interrupt the process; what it has trained so far is kept."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Stop the process and wait for its end."""
        self.stop()
        if self._process is not None:
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        with process:  # waits for its end, and closes the pipe
            for line in process.stdout or ():
                with self._lock:
                    self._read_line(line.rstrip("\n"))
        with self._lock:
            if process.returncode and not self._state["error"]:
                self._state["error"] = f"training ended with exit code {process.returncode}"

    def _read_line(self, line: str) -> None:
        try:
            message = parse_json(dict[str, Any], line)
        except EarmarkError:  # a warning of a library
            self._lines.append(line[:500])
            return
        if "stage" in message:
            total = message.get("total")
            self._state["share"] = min(1.0, message["done"] / total) if total else None
            unit = f" {message['unit']}" if message.get("unit") else ""
            done = f"{round(message['done'], 1):g} of {round(total, 1):g}{unit}" if total else ""
            parts = [done, message.get("detail") or ""]
            if self._lines and self._lines[-1].split(":")[0] == message["stage"]:
                self._lines.pop()
            self._lines.append(f"{message['stage']}: {', '.join(filter(None, parts))}".removesuffix(": "))
        elif "note" in message:
            self._lines.append(str(message["note"]))
        else:
            self._state |= {name: message[name] for name in ("summary", "error") if name in message}
