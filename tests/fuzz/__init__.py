"""Hostile input for every reader of earmark, from seeds.

    PYTHONPATH=tests python -m fuzz --minutes 30 --workers 2       what `make fuzz` does
    PYTHONPATH=tests python -m fuzz audio:123 models:7             repeat cases

A case is named by its reader and a number, such as "audio:123", which is also the seed of everything random in it. Each
reader has a module, whose function makes a `Case`: files in an empty folder, and a call that reads them. `harness` runs
cases in a worker process and judges the outcome, `runner` starts workers and notices those that crash, hang or take too
much memory, and `kit` holds the valid files that generators damage. `known` has inputs that failed once.
"""
