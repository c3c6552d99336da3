"""A tree over the clusters of a fit."""

from __future__ import annotations

from bnp_hier.deterministic.agglomeration.cluster_trees import ClusterTree, tree_from_statistics
from bnp_hier.deterministic.base import DeterministicClustering

__all__ = ["tree_of_clusters"]


def tree_of_clusters(fit: DeterministicClustering) -> ClusterTree:
    """Build the tree of Bayesian hierarchical clustering over the clusters of a fit, from their statistics alone.

    For tables that do not fit in memory: the leaves are whole clusters, so that no rows are needed. Each merge joins the pair
    of trees with the largest posterior odds of being one cluster rather than any partition consistent with the two trees, as
    in `BHC`, in O(K²) time and memory for K clusters.

    Parameters
    ----------
    fit
        Fitted estimator, such as `BayesianKMeans`, `MAPDP` or the result of `merge_fits`.

    Returns
    -------
    tree
        The `Dendrogram` of the clusters (`dendrogram`), their numbers of rows (`counts`), and a lower bound on log p(X)
        (`log_evidence_bound`, nats), which is at least `fit.log_joint_`. ``tree.dendrogram.cut()[fit.labels_]`` are labels of
        rows.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    ValueError
        If the fit's discount is not 0, its model sets a maximum number of clusters, missing values have been imputed, or the
        odds of all merges are infinite.

    Notes
    -----
    Heller & Ghahramani (2005), section 2, with the mass log α + lgamma(n_k) + m(D_k) of a single cluster for a leaf of n_k
    rows, as in Bayes k-means BHC (Xu, Heller & Ghahramani 2009).

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> X = [[-9.0], [-8.9], [4.0], [4.2], [9.0], [9.1]]
    >>> fit = bnp.MAPDP(partial(bnp.models.dpm, component=component, concentration=1.0)).fit(X)
    >>> tree = bnp.tree_of_clusters(fit)
    >>> tree.dendrogram.children, tree.counts
    (array([[1, 2],
           [0, 3]]), array([2, 2, 2]))
    """
    fit._check_exact_statistics("made into a tree")
    if fit.discount_ != 0 or fit._max_clusters_ is not None:
        raise ValueError(
            f"the tree needs a Dirichlet process, but the fit has discount {fit.discount_:g} and at most "
            f"{fit._max_clusters_ or 'any number of'} clusters"
        )
    return tree_from_statistics(fit.component_, fit.statistics_, fit.counts_, fit.concentration_)
