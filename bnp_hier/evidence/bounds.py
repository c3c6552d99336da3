"""Lower bounds on the evidence from a tree."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from bnp_hier.deterministic.bhc import BHC

__all__ = ["tree_bound"]


def tree_bound(bhc: BHC, kind: str = "bhc") -> float:
    """Lower bound on log p(X) from a fitted tree, at its hyperparameters (nats).

    Parameters
    ----------
    bhc
        A fitted `BHC`.
    kind
        "bhc": the mass of all partitions that are consistent with the tree (Heller & Ghahramani 2005, Corollary 1).

    Raises
    ------
    NotFittedError, ValueError
        If the estimator is not fitted, or the kind is unknown.
    """
    check_is_fitted(bhc, "dendrogram_")
    if kind != "bhc":
        raise ValueError(f'kind must be "bhc", but it is {kind!r}')
    return bhc.log_evidence_bound_
