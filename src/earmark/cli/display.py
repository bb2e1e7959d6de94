"""The live progress display of a command: one line on a terminal, occasional log lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from earmark.cli.terminal import escaped_output, make_console
from earmark.progress import Progress

_FIRST_LINE = 10.0  # seconds until a stage is logged for the first time: short work is not
_INTERVAL = 30.0  # seconds between further lines
_FOR_ESTIMATE = 0.01  # of a stage, which must be done before the rest is estimated: the beginning is often slow
_MIN_SHARE = 0.02  # of a stage's time between lines, so that a long one does not fill the log


class Display:
    """An `on_progress` callback that shows progress on standard error. This one shows nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._latest = Progress("")

    def __call__(self, progress: Progress) -> None:
        """Show the state of a stage."""

    def print(self, line: str) -> None:
        """Print a line on standard error without disturbing the display."""
        self._console.print(line)

    def _is_new_stage(self, progress: Progress) -> bool:
        """Whether another stage starts, or the same one again; remembers the progress."""
        latest, self._latest = self._latest, progress
        return progress.stage != latest.stage or progress.done < latest.done


class _BarDisplay(Display):
    """One bar, which changes its stage in place."""

    def __init__(self, console: Console, bar: Bar) -> None:
        super().__init__(console)
        self._bar = bar
        self._task = bar.add_task("starting", total=None, text="")

    def __call__(self, progress: Progress) -> None:
        if self._is_new_stage(progress):
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(progress.stage, total=None, completed=int(progress.done), text="")
        total = progress.total or None
        self._bar.update(self._task, completed=progress.done, total=total, text=_state(progress))


class _LogDisplay(Display):
    """A line now and then about stages that take long."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._start = self._next_line = self._done_at_start = 0.0
        self._logged: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        now, before = time.monotonic(), self._latest
        if self._is_new_stage(progress):
            self.finish(before)
            self._start, self._next_line = now, now + _FIRST_LINE
            self._done_at_start, self._logged = progress.done, None
        if now >= self._next_line:
            self._log(progress, now)
            self._next_line = now + max(_INTERVAL, _MIN_SHARE * (now - self._start))

    def finish(self, latest: Progress) -> None:
        """Log the end of a stage that has been logged before."""
        if self._logged not in (None, latest):
            self._log(latest, time.monotonic())

    def _log(self, progress: Progress, now: float) -> None:
        self._logged = progress
        gained = progress.done - self._done_at_start
        if progress.total and gained >= _FOR_ESTIMATE * progress.total and progress.done < progress.total:
            seconds = f"{_duration((progress.total - progress.done) * (now - self._start) / gained)} left"
        else:
            is_done = progress.total and progress.done >= progress.total
            seconds = f"{_duration(now - self._start)}{' in all' if is_done else ' so far'}"
        self.print(f"{progress.stage}: {', '.join(filter(None, (_state(progress), seconds)))}")


class _TimeColumn(ProgressColumn):
    """Time left, or elapsed where that cannot be estimated."""

    def render(self, task: Task) -> Text:
        if task.time_remaining:
            return Text(f"{_duration(task.time_remaining)} left", no_wrap=True)
        return Text(_duration(task.elapsed or 0), no_wrap=True)


@contextmanager
def live_display(*, quiet: bool = False) -> Iterator[Display]:
    """The display of a command; `quiet` shows nothing."""
    console = make_console(stderr=True, quiet=quiet)
    if quiet:
        yield Display(console)
    elif not console.is_terminal:
        log = _LogDisplay(console)
        yield log
        log.finish(log._latest)
    else:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[text]}", markup=False),
            _TimeColumn(),
        )
        # Standard output is redirected to the display's console, so only where it is the same terminal. Rich interprets
        # escape sequences in redirected output, so they are escaped before that.
        bar = Bar(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty())
        with bar, escaped_output():
            yield _BarDisplay(console, bar)


def _state(progress: Progress) -> str:
    """What is done, and of how much.

    >>> _state(Progress("training", 0.5, 8, "epochs", "loss 0.1"))
    '0.50/8 epochs, loss 0.1'
    """
    total = "" if progress.total is None else f"/{_number(progress.total)}"
    amount = f"{_number(progress.done)}{total} {progress.unit}" if progress.done or total else ""
    return ", ".join(filter(None, (amount, progress.detail)))


def _number(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    """A duration in its two largest units, of constant width.

    >>> _duration(5), _duration(65), _duration(3700)
    ('5 s', '1 min 05 s', '1 h 01 min')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
