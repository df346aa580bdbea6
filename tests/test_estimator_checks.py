"""scikit-learn's own suite for estimators, whole and without expected failures."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from deeplda._deprecated import SubclassDeepLDAClassifier
from deeplda.estimators import DeepLDAClassifier

# The two estimators without these settings are calibrated.
FAST = {"max_epochs": 10, "calibrate": False}


@parametrize_with_checks(
    [
        DeepLDAClassifier(),
        DeepLDAClassifier(objective="cce", **FAST),
        DeepLDAClassifier(objective="gce", gce_q=0.5, **FAST),
        DeepLDAClassifier(objective="joint", statistic="pillai", lda_weight=0.5, **FAST),
        DeepLDAClassifier(statistic="pillai", predictor="classic_lda", class_weight="balanced", **FAST),
        SubclassDeepLDAClassifier(),
        DeepLDAClassifier(
            subclasses="auto", subclass_decision="sum", cluster_on="autoencoder", autoencoder_epochs=2, **FAST
        ),
    ]
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


def test_nothing_is_skipped_or_expected_to_fail():
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
