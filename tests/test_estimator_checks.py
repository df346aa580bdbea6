"""scikit-learn's own suite for estimators, complete except for two checks that no network trained in batches passes."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from deeplda._deprecated import SubclassDeepLDAClassifier
from deeplda.estimators import DeepLDAClassifier

FAST = {"max_epochs": 10, "calibrate": False}
# Each calibrated fit trains six networks, and the checks of sparse matrices fit every format of SciPy.
CALIBRATED = {"max_epochs": 25}
# They fit repeated samples and weighted samples, and expect the same decision function up to 1e-7. But an epoch over
# repeated samples has more batches, or larger ones, and its random numbers fall on other samples. The loss, its
# gradient and the predictors are exact in weights, which tests/core/test_sample_weights.py shows.
REASON = "repeated samples make other batches than weighted ones"
EXPECTED_FAILURES = {f"check_sample_weight_equivalence_on_{kind}_data": REASON for kind in ("dense", "sparse")}
# Hyperplanes have equal priors, whatever the weights, because frequencies as priors lost accuracy; `priors` moves them.
EQUAL_PRIORS = {"check_class_weight_classifiers": "the weights of classes are not their priors"}


def expected_failures(estimator):
    by_hyperplanes = estimator.objective == "lda" and estimator.predictor is None
    return EXPECTED_FAILURES | (EQUAL_PRIORS if by_hyperplanes else {})


@parametrize_with_checks(
    [
        DeepLDAClassifier(**CALIBRATED),
        DeepLDAClassifier(objective="cce", **FAST),
        DeepLDAClassifier(objective="gce", gce_q=0.5, **FAST),
        DeepLDAClassifier(objective="joint", statistic="pillai", lda_weight=0.5, **FAST),
        DeepLDAClassifier(statistic="pillai", predictor="classic_lda", class_weight="balanced", **FAST),
        DeepLDAClassifier(hidden_layer_sizes=(16,), dropout=0.2, **FAST),
        SubclassDeepLDAClassifier(**CALIBRATED),
        DeepLDAClassifier(
            subclasses="auto", subclass_decision="sum", cluster_on="autoencoder", autoencoder_epochs=2, **FAST
        ),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_nothing_is_skipped():
    tags = DeepLDAClassifier().__sklearn_tags__()
    assert not tags._skip_test
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert not tags.classifier_tags.poor_score


@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "predict_log_proba", "decision_function", "mahalanobis", "transform"]
)
def test_scikit_learn_sees_the_methods(method):
    assert hasattr(DeepLDAClassifier(), method)
