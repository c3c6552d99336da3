"""Pictures of partitions, trees and chains. All return Matplotlib figures or axes and open no window."""

from bnp_hier.plots.chains import traces
from bnp_hier.plots.heatmap import coclustering
from bnp_hier.plots.scatter import pairs
from bnp_hier.plots.tree import dendrogram

__all__ = ["coclustering", "dendrogram", "pairs", "traces"]
