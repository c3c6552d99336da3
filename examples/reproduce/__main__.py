"""Run the reproductions of the papers, and write the page about them.

From the root of the repository:

    python -m examples.reproduce all --full                     # the papers' sizes; hours, see --list
    python -m examples.reproduce bhc_table1 me_table1 --quick   # small sizes, to see whether they run
    python -m examples.reproduce --list
    python -m examples.reproduce --page                         # docs/reproductions.md and the README, from the outputs

A command that was stopped, or in which a script failed, is started again in the same way: it goes on with what is missing.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import page
import runs


def main() -> int:
    names = [script.name for script in runs.SCRIPTS]
    parser = argparse.ArgumentParser(
        "python -m examples.reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, or 'all'")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--full", action="store_true", help="the papers' sizes")
    sizes.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--out", type=Path, default=Path("output"), help="folder for outputs, logs and the state of the runs")
    parser.add_argument("--again", action="store_true", help="run finished scripts, too")
    parser.add_argument("--list", action="store_true", help="scripts, what they reproduce, and measured times")
    parser.add_argument("--page", action="store_true", help="write the page from the outputs in the repository")
    options = parser.parse_args()
    if options.list:
        print(runs.listing(page.OUTPUT))
        return 0
    if options.page:
        page.write()
        return 0
    unknown = sorted(set(options.names) - {*names, "all"})
    if unknown or not options.names:
        parser.error(f"name scripts among {', '.join(names)}, or 'all'; got {', '.join(unknown) or 'none'}")
    if options.full == options.quick:
        parser.error("choose --full or --quick")
    chosen = [script for script in runs.SCRIPTS if {script.name, "all"} & set(options.names)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        failures = runs.run_all(chosen, options.full, options.out.resolve(), options.again)
    except KeyboardInterrupt:
        print("stopped; the same command goes on with what is missing", file=sys.stderr)
        return 130
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{len(chosen) - len(failures)} of {len(chosen)} scripts finished")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
