"""The entry point of the command `earmark`.

Importing the command line takes a while. Ctrl-C during that time ends the process silently, as a signal without a
handler does; Python would print where it was.
"""

import signal

__all__ = ["main"]


def main() -> None:
    """Import the command line and run it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from earmark.cli import main as run

    signal.signal(signal.SIGINT, handler)
    run()
