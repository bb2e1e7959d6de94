"""`python -m earmark`: the command `earmark`."""

from earmark.start import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
