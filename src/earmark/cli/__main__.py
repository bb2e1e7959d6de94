"""`python -m earmark.cli`"""

from earmark.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
