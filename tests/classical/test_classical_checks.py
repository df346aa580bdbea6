"""scikit-learn's own suite for estimators, whole and without expected failures."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from deeplda.classical import KernelLDA, StreamingLDA, TwoDimensionalLDA


class SquarestLDA(TwoDimensionalLDA):
    """Takes rows as the squarest images of their length, so that the suite's rows of any length have two sides."""

    def _as_images(self, inputs):
        length = inputs.shape[1]
        height = max(h for h in range(1, int(np.sqrt(length)) + 1) if length % h == 0)
        return TwoDimensionalLDA(image_shape=(height, -1))._as_images(inputs)


@parametrize_with_checks(
    [
        StreamingLDA(),
        StreamingLDA(shrinkage="ledoit-wolf"),
        StreamingLDA(shrinkage="oas", lam=0.1),
        KernelLDA(),
        KernelLDA(approximation="fourier", n_basis=60, random_state=0),
        KernelLDA(approximation="nystroem", kernel="poly", degree=2, n_basis=40, random_state=0),
        TwoDimensionalLDA(),
        TwoDimensionalLDA(image_shape=(-1, 1), sides="left"),
        SquarestLDA(),
        SquarestLDA(sides="right"),
    ]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [StreamingLDA(), KernelLDA(), TwoDimensionalLDA()])
def test_nothing_is_skipped_or_expected_to_fail(estimator):
    tags = estimator.__sklearn_tags__()
    assert not tags._skip_test
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert not tags.classifier_tags.poor_score


def test_only_random_features_learn_in_batches():
    assert hasattr(KernelLDA(approximation="fourier"), "partial_fit")
    assert not hasattr(KernelLDA(), "partial_fit")
