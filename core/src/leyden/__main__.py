"""`python -m leyden` is `leyden`."""

from leyden.cli import main

if __name__ == "__main__":
    main()
