"""`python -m earmark.cli`"""

from earmark.cli import main

if __name__ == "__main__":
    main()
