"""Principal components."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from bnp_hier.datasets import load, principal_components


def test_scores_are_those_of_scikit_learn() -> None:
    X = load("iris").X
    ours, theirs = principal_components(X, 3), PCA(3).fit_transform(X)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-9)
    assert (ours[np.abs(ours).argmax(0), np.arange(3)] > 0).all()


@pytest.mark.parametrize("shape", [(200, 60), (60, 200)])
def test_the_threshold_finds_the_rank_below_noise(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    signal = 2.0 * rng.normal(size=(shape[0], 4)) @ rng.normal(size=(4, shape[1]))
    assert principal_components(signal + 0.5 * rng.normal(size=shape)).shape == (shape[0], 4)


@pytest.mark.parametrize("asked", [0, 5, 2.5])
def test_more_components_than_there_are(asked: float) -> None:
    with pytest.raises(ValueError, match=r"from 1 to min\(n - 1, d\) = 4, as X has 150 rows and 4 columns, but it is"):
        principal_components(load("iris").X, asked)
    with pytest.raises(ValueError, match="at least two rows, but X has one"):
        principal_components(np.ones((1, 3)))
