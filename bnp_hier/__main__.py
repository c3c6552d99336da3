"""The command-line interface, as `python -m bnp_hier`."""

from bnp_hier.cli import main

if __name__ == "__main__":
    main()
