"""DeepLDAClassifier(subclasses=...), and its deprecated second name."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import clone
from torch import nn

from deeplda import DeepLDAClassifier
from deeplda._deprecated import SubclassDeepLDAClassifier
from deeplda.batch_rule import SmallBatchWarning
from deeplda.errors import InputError


def xor(seed, n=400):
    """Two classes of two far-apart groups each, the class means both at the centre: no linear map tells them apart."""
    rng = np.random.default_rng(seed)
    corners = np.array([[3, 3], [-3, -3], [3, -3], [-3, 3]])
    group = np.arange(n) % 4
    return corners[group] + rng.normal(size=(n, 2)), np.array(["same", "other"])[group // 2]


def linear(shape, embedding_dim):
    return nn.Linear(shape[0], embedding_dim)


def test_subclasses_solve_what_a_linear_network_cannot_undo():
    plain, split = [], []
    for seed in range(5):
        x, y = xor(seed)
        test_x, test_y = xor(100 + seed)
        settings = {"network": linear, "embedding_dim": 2, "max_epochs": 40, "calibrate": False, "random_state": seed}
        plain.append(DeepLDAClassifier(**settings).fit(x, y).score(test_x, test_y))
        with pytest.warns(SmallBatchWarning, match="does not suit 2 dimensions"):  # four subclasses
            fitted = DeepLDAClassifier(subclasses=2, **settings).fit(x, y)
        split.append(fitted.score(test_x, test_y))
    assert min(split) > 0.95
    assert max(plain) < 0.8


def test_a_callable_is_asked_for_as_many_outputs_as_subclasses():
    asked = []

    def build(sample_shape, embedding_dim):
        asked.append(embedding_dim)
        return linear(sample_shape, embedding_dim)

    DeepLDAClassifier(subclasses=2, network=build, max_epochs=2, random_state=0).fit(*xor(0, 120))
    # The first network is the model's, the others are those that calibrate it.
    assert asked == [4] * 6


@pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")
def test_batches_have_two_subclasses_where_one_is_large():
    """Of 305 samples of one and 10 each of two others, batches of 16 would come out with the large one alone."""
    rng = np.random.default_rng(0)
    groups = np.repeat([[0, 0], [9, 9], [-9, 9]], [305, 10, 10], axis=0)
    x, y = groups + rng.normal(size=groups.shape), np.repeat([0, 1], [305, 20])
    fitted = DeepLDAClassifier(subclasses="auto", batch_size=16, max_epochs=20, random_state=0).fit(x, y)
    assert fitted.model_.card.parents == (0, 1, 1)
    assert fitted.score(x, y) > 0.95


def test_one_subclass_is_the_plain_classifier():
    x, y = xor(0, 120)
    settings = {"max_epochs": 5, "embedding_dim": 2, "random_state": 3}
    plain = DeepLDAClassifier(**settings).fit(x, y)
    one = DeepLDAClassifier(subclasses=1, **settings).fit(x, y)
    assert_array_equal(plain.decision_function(x), one.decision_function(x))


@pytest.mark.parametrize("decision", ["argmax", "sum"])
def test_decisions_agree_with_probabilities(decision):
    x, y = xor(1, 200)
    fitted = DeepLDAClassifier(subclasses=2, subclass_decision=decision, max_epochs=10, random_state=0).fit(x, y)
    probabilities = fitted.predict_proba(x)
    assert_array_equal(fitted.classes_[probabilities.argmax(1)], fitted.predict(x))
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-12)
    assert fitted.model_.card.parents == (0, 0, 1, 1)
    assert fitted.model_.card.embedding_dim == 4
    assert fitted.transform(x).shape == (200, 3)


def test_save_and_load(tmp_path):
    x, y = xor(2, 200)
    fitted = DeepLDAClassifier(subclasses=2, max_epochs=5, random_state=0).fit(x, y)
    fitted.save(tmp_path / "saved")
    loaded = DeepLDAClassifier.load(tmp_path / "saved")
    assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    assert loaded.get_params() == fitted.get_params()


class TestDeprecatedName:
    @pytest.mark.parametrize("module", ["deeplda", "deeplda.estimators"])
    def test_its_import_warns_and_points_at_the_line(self, module):
        with pytest.warns(DeprecationWarning, match=r"use DeepLDAClassifier\(subclasses=2\)") as caught:
            exec(compile(f"from {module} import SubclassDeepLDAClassifier", "caller.py", "exec"), {})
        assert {warning.filename for warning in caught} == {"caller.py"}

    def test_its_use_does_not_warn_and_is_the_new_classifier(self):
        x, y = xor(0, 120)
        settings = {"max_epochs": 5, "random_state": 3}
        old = SubclassDeepLDAClassifier(**settings).fit(x, y)
        new = DeepLDAClassifier(subclasses=2, **settings).fit(x, y)
        assert_array_equal(old.decision_function(x), new.decision_function(x))
        assert clone(old).get_params() == new.get_params()

    def test_misspelt_parameters_are_rejected(self):
        with pytest.raises(TypeError, match="alpah"):
            SubclassDeepLDAClassifier(alpah=0.2)


def test_wrong_number_of_subclasses():
    with pytest.raises(InputError, match="subclasses"):
        DeepLDAClassifier(subclasses=0).fit(*xor(0, 40))


@pytest.mark.parametrize("decision", ["argmax", "sum"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_splitting_a_class_does_not_make_it_more_likely(k, decision):
    """Of two classes with the same distribution, the rare one is too small to be split."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(415, 2)), np.repeat([0, 1], [400, 15])
    classifier = DeepLDAClassifier(
        subclasses=k, subclass_decision=decision, network=linear, max_epochs=5, calibrate=False, random_state=0
    ).fit(rows, labels)
    assert 0.3 < classifier.predict_proba(rng.normal(size=(1000, 2)))[:, 1].mean() < 0.6
    model = classifier.model_
    if decision == "sum":
        # Nearest mean measures in units of the embedding, where subclasses overlap, so only the sum is unbiased.
        embedding = torch.as_tensor(model.transform(rng.normal(size=(1000, 2))))
        assert 0.45 < model.class_probabilities(embedding, "nearest_mean")[:, 1].mean() < 0.56
    for name in ("hyperplanes", "nearest_mean"):
        if k > 1:
            priors = np.asarray(model._named_predictor(name).priors)
            assert priors[:-1].sum() == pytest.approx(1)
            assert priors[-1] == 1
            np.testing.assert_allclose(priors[:-1] * 400, model.statistics.counts[:-1])


def test_the_probabilities_of_subclasses_are_calibrated():
    rows, labels = xor(0, 120)
    classifier = DeepLDAClassifier(subclasses=2, network=linear, max_epochs=5, random_state=0).fit(rows, labels)
    assert classifier.model_.calibrated_on == len(labels)
    assert classifier.predict_proba(rows).shape == (len(labels), 2)
    assert (classifier.classes_[classifier.predict_proba(rows).argmax(1)] == classifier.predict(rows)).all()
