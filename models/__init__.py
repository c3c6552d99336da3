"""NumPyro models of Dirichlet-process mixtures, meant to be read and copied."""

from bnp_hier.models.dirichlet_process import dpm, dpm_stick_breaking, pitman_yor_mixture

__all__ = ["dpm", "dpm_stick_breaking", "pitman_yor_mixture"]
