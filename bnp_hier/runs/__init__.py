"""MCMC runs that can be stopped and resumed, and saved fits."""

from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.runs.saved_fit import SavedFit, load_fit

__all__ = ["ResumableRun", "SavedFit", "load_fit"]
