"""The command-line interface, `bnp-hier`."""

from __future__ import annotations

import gc
import io
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from bnp_hier.commands.bounds import evidence
from bnp_hier.commands.comparing import compare
from bnp_hier.commands.console import NAME, err, out, print_warnings
from bnp_hier.commands.fitting import fit, predict
from bnp_hier.commands.options import with_options
from bnp_hier.commands.overview import datasets, recommend
from bnp_hier.commands.preparation import warm_up
from bnp_hier.commands.trees import tree
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.compilation_cache import keep_programs
from bnp_hier.utils.interruption import INTERRUPTED, interrupted, interruptible
from bnp_hier.utils.quick_compilation import compile_everything_quickly
from bnp_hier.utils.wording import printable

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

COMMANDS: dict[Callable[..., None], str] = {
    compare: "bnp-hier compare iris   |   bnp-hier compare survey.csv --truth group --held-out 0.2 --out report",
    fit: "bnp-hier fit survey.csv --drop id --method map-dp --out survey.npz --labels clusters.csv",
    predict: "bnp-hier predict survey.npz new-answers.csv --out predictions.csv",
    evidence: "bnp-hier evidence iris   |   bnp-hier evidence survey.csv --family poisson --rows 500 --plot bounds.png",
    tree: "bnp-hier tree animals.csv --items animal --out tree.svg   |   bnp-hier tree wine --method bhmc --out tree.html",
    recommend: "bnp-hier recommend survey.csv --drop id --minutes 10",
    datasets: "bnp-hier datasets   |   bnp-hier datasets iris   |   bnp-hier datasets survey.csv",
    warm_up: "bnp-hier warm-up",
}
"""Command -> example shown in its help."""


def register(command: Callable[..., None], example: str) -> None:
    """Add a command; its help shows the example."""
    app.command(epilog=f"Example:  {example}")(with_options(command))


for each in COMMANDS.items():
    register(*each)


def _print_version(wanted: bool) -> bool:
    if wanted:
        out.print(f"{NAME} {version(NAME)}")
        raise typer.Exit
    return wanted


@app.callback(
    epilog="Exit codes: 0 success; 1 an error, reported in one line; 2 a usage error; 3 finished, but part of the result is "
    "missing, as the output explains; 130 interrupted."
)
def _commands(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the full traceback of an error; accepted anywhere in a command.")
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Bayesian nonparametric clustering: one model, every inference method."""


def main() -> None:
    """Run the command line; errors and warnings are reported in one line each."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where it takes ASCII only
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor")
        warnings.filterwarnings("ignore", message="There are not enough devices to run parallel chains.*")
        warnings.showwarning = partial(_show_warning, set())
        _run()


def _show_warning(shown: set[str], message: Warning | str, *where: object) -> None:
    """Print the text of a warning, unless it has been shown: several methods may say the same."""
    text = " ".join(str(message).split())
    if text not in shown:
        shown.add(text)
        print_warnings([text])


def _run() -> None:
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    keep_programs()
    compile_everything_quickly()
    # what has been imported stays, and tracing allocates much: do not look through everything again and again
    gc.freeze()
    gc.set_threshold(10_000)
    try:
        with interruptible(), blas_on_one_core():
            app()
    except KeyboardInterrupt:
        _leave(INTERRUPTED)
    except SystemExit as stop:  # typer also raises it for a KeyboardInterrupt
        _leave(stop.code)
    except (ValueError, TypeError, FloatingPointError, OSError, ImportError) as error:
        if debug:
            raise
        message = printable(" ".join(str(error).split()))
        err.print(Text.assemble(("error:", "bold red"), f" {message}"), soft_wrap=True)
        _leave(1)


def _leave(code: str | int | None) -> NoReturn:
    """Exit; after an interruption, skip the interpreter's teardown, in which a compiled program that still runs would crash."""
    if code == INTERRUPTED:
        err.print("interrupted")
    if interrupted():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
