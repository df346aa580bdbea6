"""The estimator among scikit-learn's tools, on rows and on images, and what its parameters mean."""

import pickle
import warnings

import joblib
import numpy as np
import pytest
import scipy.special
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from torch import nn

from deeplda.batch_rule import SmallBatchWarning
from deeplda.data.dataset import Part
from deeplda.data.mapped_rows import MappedRows
from deeplda.estimator_inputs import calibration_folds
from deeplda.estimators import DeepLDAClassifier
from deeplda.training.evaluation import calibrate_model, gather_scores
from deeplda.training.trainee import Classifier

# Decisions do not depend on calibration, which trains up to five more networks.
FAST = {"max_epochs": 10, "random_state": 0, "calibrate": False}
CALIBRATED = FAST | {"calibrate": True}


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def images():
    pixels, labels = load_digits(n_class=3, return_X_y=True)
    return pixels.reshape(-1, 1, 8, 8)[:150], labels[:150]


@pytest.fixture(scope="module")
def fitted(iris):
    return DeepLDAClassifier(random_state=0, max_epochs=30).fit(*iris)


@pytest.fixture(scope="module")
def overlapping():
    return make_blobs([150, 50], centers=np.array([[0, 0], [1, 1]]), cluster_std=1.5, random_state=0)


def drawn(shape, width):
    """A network of the user's with random weights and dropout."""
    return nn.Sequential(nn.Linear(*shape, 16), nn.Dropout(0.5), nn.Linear(16, width))


class TestAmongScikitLearn:
    def test_pipeline(self, iris):
        assert make_pipeline(PCA(3), DeepLDAClassifier(**FAST)).fit(*iris).score(*iris) > 0.9

    def test_transformer_in_a_pipeline(self, iris):
        assert make_pipeline(DeepLDAClassifier(**FAST), LinearDiscriminantAnalysis()).fit(*iris).score(*iris) > 0.9

    def test_grid_search_over_alpha(self, iris):
        search = GridSearchCV(DeepLDAClassifier(**FAST), {"alpha": np.array([0.0, 0.6, 1.0])}, cv=2).fit(*iris)
        assert search.best_score_ > 0.9
        assert search.best_estimator_.model_.card.alpha == search.best_params_["alpha"]

    def test_cross_val_score(self, iris):
        assert cross_val_score(DeepLDAClassifier(**FAST), *iris, cv=3).min() > 0.85

    def test_calibration(self, iris):
        calibrated = CalibratedClassifierCV(DeepLDAClassifier(**FAST), cv=2).fit(*iris)
        assert calibrated.score(*iris) > 0.9

    def test_clone_keeps_every_parameter(self):
        original = DeepLDAClassifier(alpha=0.3, network=nn.Linear(4, 3), class_weight={0: 2.0})
        copied = clone(original)
        assert copied.network is not original.network
        assert {**copied.get_params(), "network": None} == {**original.get_params(), "network": None}

    @pytest.mark.parametrize("carry", [lambda c: pickle.loads(pickle.dumps(c)), None])
    def test_pickle_and_joblib(self, fitted, iris, tmp_path, carry):
        if carry is None:
            joblib.dump(fitted, tmp_path / "classifier.joblib")
            other = joblib.load(tmp_path / "classifier.joblib")
        else:
            other = carry(fitted)
        np.testing.assert_array_equal(other.decision_function(iris[0]), fitted.decision_function(iris[0]))

    def test_pandas_in_and_out(self, iris):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(iris[0], columns=["a", "b", "c", "d"])
        labels = pandas.Series(iris[1]).map({0: "setosa", 1: "versicolor", 2: "virginica"})
        classifier = DeepLDAClassifier(**FAST).set_output(transform="pandas").fit(frame, labels)
        assert classifier.feature_names_in_.tolist() == ["a", "b", "c", "d"]
        coordinates = classifier.transform(frame)
        assert coordinates.columns.tolist() == ["deepldaclassifier0", "deepldaclassifier1"]
        assert set(classifier.predict(frame)) == {"setosa", "versicolor", "virginica"}
        with pytest.raises(ValueError, match="feature names"):
            classifier.predict(frame[["b", "a", "c", "d"]])


class TestAnswers:
    def test_a_row_answers_the_same_in_any_company(self, fitted, iris):
        rows = np.concatenate([iris[0], iris[0] + 0.01])
        methods = ("decision_function", "predict_proba", "predict_log_proba", "mahalanobis", "transform")
        for method in (getattr(fitted, name) for name in methods):
            together = method(rows)
            np.testing.assert_array_equal(np.concatenate([method(row[None]) for row in rows[::37]]), together[::37])
            np.testing.assert_array_equal(method(rows[5:90]), together[5:90])
            np.testing.assert_array_equal(method(rows[::-1])[::-1], together)

    def test_answers_agree(self, fitted, iris):
        scores, probabilities = fitted.decision_function(iris[0]), fitted.predict_proba(iris[0])
        assert (fitted.classes_[scores.argmax(1)] == fitted.predict(iris[0])).all()
        calibration = fitted.model_.predictor.calibration
        beta, share = float(calibration.inverse_temperature), float(calibration.uniform_share)
        sharpened = scipy.special.softmax(beta * scores, axis=1)
        np.testing.assert_allclose(probabilities, (1 - share) * sharpened + share / 3)
        assert fitted.model_.predict(iris[0]).tolist() == fitted.predict(iris[0]).astype(str).tolist()

    def test_log_probabilities_do_not_underflow(self, iris):
        far = iris[0] + np.array([0, 0, 1e4, 1e4])
        for calibrate in (True, False):
            classifier = DeepLDAClassifier(max_epochs=10, random_state=0, calibrate=calibrate).fit(*iris)
            np.testing.assert_allclose(
                classifier.predict_log_proba(iris[0]), np.log(classifier.predict_proba(iris[0])), rtol=1e-7, atol=1e-12
            )
            logs, scores = classifier.predict_log_proba(far), classifier.decision_function(far)
            assert np.isfinite(logs).all()
            np.testing.assert_allclose(scipy.special.logsumexp(logs, axis=1), 0, atol=1e-9)
            assert (logs.argmax(1) == scores.argmax(1)).all()
        # Without calibration, the probabilities are the softmax of the scores, most of which underflow.
        assert (classifier.predict_proba(far) == 0).mean() > 0.5
        np.testing.assert_allclose(logs, scipy.special.log_softmax(scores, axis=1))

    def test_distances_to_the_nearest_class(self, fitted, iris):
        embedding = fitted.model_.transform(iris[0])
        means = np.stack([embedding[iris[1] == c].mean(0) for c in range(3)])
        centred = embedding - means[iris[1]]
        inverse = np.linalg.inv(centred.T @ centred / 150)
        differences = embedding[:, None] - means
        squares = np.einsum("ncd,de,nce->nc", differences, inverse, differences)
        np.testing.assert_allclose(fitted.mahalanobis(iris[0]), np.sqrt(squares.min(1)), rtol=1e-6)
        assert fitted.mahalanobis(iris[0] + 30).min() > fitted.mahalanobis(iris[0]).max()

    def test_distances_need_statistics(self, iris):
        with pytest.raises(ValueError, match="no statistics of its training set"):
            DeepLDAClassifier(objective="cce", **FAST).fit(*iris).mahalanobis(iris[0])

    @pytest.mark.parametrize("before", [True, False])
    def test_a_fit_that_fails_leaves_nothing_fitted(self, iris, before):
        classifier = DeepLDAClassifier(**FAST)
        if before:
            classifier.fit(*iris)
        with pytest.raises(ValueError, match="alpha"):
            classifier.set_params(alpha=2.0).fit(iris[0][:100], iris[1][:100])
        with pytest.raises(NotFittedError):
            classifier.predict(iris[0])
        assert classifier.set_params(alpha=1.0).fit(*iris).score(*iris) > 0.8

    def test_the_same_seed_gives_the_same_and_another_does_not(self, iris):
        first, again, other = (
            DeepLDAClassifier(max_epochs=3, random_state=seed).fit(*iris).decision_function(iris[0])
            for seed in (7, 7, 8)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.allclose(first, other)

    @pytest.mark.parametrize(
        "network", [None, nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 3)), drawn]
    )
    def test_fits_in_threads_are_those_of_one_thread(self, iris, network):
        """Dropout and initial weights come from torch's default generator, which all threads share."""

        def fit(seed):
            classifier = DeepLDAClassifier(network=network, max_epochs=8, random_state=seed)
            return classifier.fit(*iris).decision_function(iris[0])

        torch.manual_seed(3)
        before, before_numpy = torch.random.get_rng_state(), np.random.get_state()[1].copy()
        together = joblib.Parallel(4, backend="threading")(joblib.delayed(fit)(seed) for seed in range(8))
        assert torch.equal(before, torch.random.get_rng_state())
        assert (before_numpy == np.random.get_state()[1]).all()
        for seed, found in enumerate(together):
            np.testing.assert_array_equal(found, fit(seed), err_msg=f"seed {seed}")

    def test_fit_leaves_the_random_numbers_of_torch_alone(self, iris):
        torch.manual_seed(3)
        before = torch.random.get_rng_state()
        DeepLDAClassifier(network=lambda shape, width: nn.Linear(*shape, width), **FAST).fit(*iris)
        assert torch.equal(before, torch.random.get_rng_state())

    def test_two_classes_have_one_score(self, iris):
        rows, labels = iris[0][50:], np.where(iris[1][50:] == 1, "no", "yes")
        classifier = DeepLDAClassifier(**FAST).fit(rows, labels)
        score = classifier.decision_function(rows)
        assert score.shape == (100,)
        assert (np.where(score > 0, "yes", "no") == classifier.predict(rows)).all()
        assert classifier.transform(rows).shape == (100, 1)

    @pytest.mark.parametrize("predictor", ["hyperplanes", "nearest_mean", "classic_lda"])
    def test_every_predictor_decides(self, iris, predictor):
        classifier = DeepLDAClassifier(predictor=predictor, **FAST).fit(*iris)
        chosen = classifier.model_._named_predictor(predictor)
        embedding = torch.as_tensor(classifier.model_.transform(iris[0]))
        assert classifier.predict(iris[0]).tolist() == chosen.predict(embedding).tolist()
        assert classifier.score(*iris) > 0.9

    @pytest.mark.parametrize("predictor", [None, "softmax", "hyperplanes", "classic_lda"])
    def test_joint_has_all_predictors_and_decides_by_softmax_unless_told_otherwise(self, iris, tmp_path, predictor):
        classifier = DeepLDAClassifier(objective="joint", predictor=predictor, **FAST).fit(*iris)
        assert set(classifier.model_.card.predictors) == {"softmax", "hyperplanes", "nearest_mean", "classic_lda"}
        embedding = torch.as_tensor(classifier.model_.transform(iris[0]))
        expected = embedding
        if predictor not in (None, "softmax"):
            expected = classifier.model_._named_predictor(predictor).decision_function(embedding)
        np.testing.assert_allclose(classifier.decision_function(iris[0]), expected, rtol=1e-9)
        assert classifier.score(*iris) > 0.8
        classifier.save(tmp_path / "joint")
        again = DeepLDAClassifier.load(tmp_path / "joint")
        np.testing.assert_array_equal(again.predict_proba(iris[0]), classifier.predict_proba(iris[0]))
        assert again.get_params()["predictor"] == predictor

    def test_the_weights_of_the_losses_change_the_training(self, iris):
        def losses(**settings):
            return DeepLDAClassifier(**settings, **FAST).fit(*iris).loss_curve_

        assert losses(objective="joint") != losses(objective="joint", lda_weight=0.5)
        assert losses(objective="gce") != losses(objective="gce", gce_q=0.5)
        assert losses(objective="gce", gce_q=1e-9) == pytest.approx(losses(objective="cce"), rel=1e-3)

    def test_coordinates_are_those_of_lda_on_the_embedding(self, iris):
        classifier = DeepLDAClassifier(alpha=1.0, lam=0.0, **FAST).fit(*iris)
        coordinates, embedding = classifier.transform(iris[0]), classifier.model_.transform(iris[0])
        reference = LinearDiscriminantAnalysis(solver="svd").fit(embedding, iris[1]).transform(embedding)
        # The signs are free, and so is whether the within scatter is divided by n or by n - C.
        ratio = coordinates / reference
        np.testing.assert_allclose(ratio, np.tile(np.sign(ratio[0]) * np.abs(ratio[0, 0]), (150, 1)), rtol=1e-5)
        centred = coordinates - np.stack([coordinates[iris[1] == c].mean(0) for c in range(3)])[iris[1]]
        np.testing.assert_allclose(centred.T @ centred / 150, np.eye(2), atol=1e-6)

    def test_coordinates_hold_all_that_the_hyperplanes_use(self, fitted, iris):
        coordinates = fitted.transform(iris[0])
        means = np.stack([coordinates[iris[1] == c].mean(0) for c in range(3)])
        scores = coordinates @ means.T - (means**2).sum(1) / 2
        ours = fitted.decision_function(iris[0])
        np.testing.assert_allclose(scores - scores[:, :1], ours - ours[:, :1], rtol=1e-6, atol=1e-6)

    def test_features_of_any_size_and_offset(self, iris):
        rows, labels = iris
        changed = rows * np.array([1e-12, 1e9, 1.0, 1e3]) + np.array([0.0, 1e12, 1e6, -1e5])
        plain, other = (DeepLDAClassifier(**FAST).fit(x, labels).predict_proba(x) for x in (rows, changed))
        np.testing.assert_allclose(plain, other, atol=1e-2)

    def test_a_constant_feature_does_no_harm(self, iris):
        rows = np.column_stack([iris[0], np.full(150, 0.1)])
        classifier = DeepLDAClassifier(**FAST).fit(rows, iris[1])
        moved = rows + np.array([0, 0, 0, 0, 1e-6])
        np.testing.assert_allclose(classifier.predict_proba(rows), classifier.predict_proba(moved), atol=1e-3)


class TestImages:
    @pytest.mark.parametrize("dtype", [np.float64, np.uint8])
    def test_images(self, images, dtype):
        pixels, labels = images[0].astype(dtype), images[1]
        classifier = DeepLDAClassifier(max_epochs=4, batch_size=50, random_state=0).fit(pixels, labels)
        assert classifier.score(pixels, labels) > 0.9
        assert classifier.transform(pixels).shape == (150, 2)
        assert classifier.predict_proba(pixels[:1]).shape == (1, 3)
        with pytest.raises(ValueError, match="inputs has shape"):
            classifier.predict(pixels[:, :, :7])

    def test_other_shapes_are_refused(self, images):
        with pytest.raises(ValueError, match="2 axes for feature vectors or 4 for images"):
            DeepLDAClassifier().fit(images[0][:, 0], images[1])


class TestOwnNetworks:
    def test_a_module_is_copied(self, iris):
        network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5))
        before = {name: value.clone() for name, value in network.state_dict().items()}
        classifier = DeepLDAClassifier(network=network, **FAST).fit(*iris)
        assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
        assert classifier.model_.card.embedding_dim == 5
        assert classifier.transform(iris[0]).shape == (150, 2)
        assert classifier.score(*iris) > 0.8

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_a_module_of_another_precision(self, iris, dtype):
        network = nn.Linear(4, 3).to(dtype)
        assert DeepLDAClassifier(network=network, **FAST).fit(*iris).score(*iris) > 0.8
        assert network.weight.dtype == dtype

    def test_a_callable_gets_shape_and_width(self, iris):
        asked = []

        def build(sample_shape, embedding_dim):
            asked.append((sample_shape, embedding_dim))
            return nn.Linear(sample_shape[0], embedding_dim)

        classifier = DeepLDAClassifier(network=build, embedding_dim=4, **CALIBRATED).fit(*iris)
        # The first network is the model's, the others are those that calibrate it.
        assert asked == [((4,), 4)] * 6
        assert classifier.score(*iris) > 0.8

    def test_a_name(self, iris):
        assert DeepLDAClassifier(network="mlp", **FAST).fit(*iris).model_.card.network == "mlp"
        with pytest.raises(ValueError, match="did you mean 'mlp'"):
            DeepLDAClassifier(network="mlpp").fit(*iris)

    @pytest.mark.parametrize(
        ("network", "message"),
        [
            (3, "network is 3"),
            (lambda _shape, _width: "no", "network is <function"),
            (nn.Flatten(0), "turns one sample of shape"),
        ],
    )
    def test_what_is_no_network_is_refused(self, iris, network, message):
        with pytest.raises(ValueError, match=message):
            DeepLDAClassifier(network=network).fit(*iris)

    @pytest.mark.parametrize("option", [{"hidden_layer_sizes": (8,)}, {"dropout": 0.1}])
    @pytest.mark.parametrize("network", [nn.Linear(4, 3), drawn, "deeplda.networks:MLP"])
    def test_they_have_their_own_layers(self, iris, network, option):
        with pytest.raises(ValueError, match=rf"{next(iter(option))} is .* has its own layers: omit"):
            DeepLDAClassifier(network=network, **option, **FAST).fit(*iris)

    def test_a_width_that_does_not_agree_is_refused(self, iris):
        with pytest.raises(ValueError, match="3 outputs, but embedding_dim is 4"):
            DeepLDAClassifier(network=nn.Linear(4, 3), embedding_dim=4).fit(*iris)


class TestHiddenLayers:
    def test_the_default_is_128_twice_with_dropout(self, iris):
        plain = DeepLDAClassifier(**FAST).fit(*iris)
        stated = DeepLDAClassifier(hidden_layer_sizes=(128, 128), dropout=0.2, **FAST).fit(*iris)
        np.testing.assert_array_equal(plain.decision_function(iris[0]), stated.decision_function(iris[0]))

    def test_with_many_samples_layers_are_wider_and_decay_less(self, iris):
        many = (np.tile(iris[0], (34, 1)), np.tile(iris[1], 34))
        few = {"max_epochs": 1, "random_state": 0, "calibrate": False}
        plain = DeepLDAClassifier(**few).fit(*many)
        stated = DeepLDAClassifier(hidden_layer_sizes=(256, 256), dropout=0.1, weight_decay=10 / 5_100, **few).fit(
            *many
        )
        np.testing.assert_array_equal(plain.decision_function(iris[0]), stated.decision_function(iris[0]))

    def test_a_warm_start_with_more_samples_keeps_the_layers(self, iris):
        classifier = DeepLDAClassifier(max_epochs=1, warm_start=True, random_state=0, calibrate=False).fit(*iris)
        classifier.fit(np.tile(iris[0], (34, 1)), np.tile(iris[1], 34))
        assert classifier.model_.card.hidden_layer_sizes == (128, 128)

    @pytest.mark.parametrize("sizes", [(), (9,), [7, 5, 3], np.array([6, 4])])
    def test_sizes(self, iris, sizes, tmp_path):
        classifier = DeepLDAClassifier(hidden_layer_sizes=sizes, dropout=np.float64(0.25), **FAST).fit(*iris)
        linear = [m for m in classifier.model_.network.hidden if isinstance(m, nn.Linear)]
        assert [layer.out_features for layer in linear] == list(sizes)
        assert {m.p for m in classifier.model_.network.modules() if isinstance(m, nn.Dropout)} <= {0.25}
        assert classifier.model_.card.hidden_layer_sizes == tuple(sizes)
        classifier.save(tmp_path / "saved")
        loaded = DeepLDAClassifier.load(tmp_path / "saved")
        assert loaded.get_params()["hidden_layer_sizes"] == tuple(sizes)
        np.testing.assert_array_equal(loaded.predict_proba(iris[0]), classifier.predict_proba(iris[0]))

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"hidden_layer_sizes": (5, 0)}, "each of hidden_layer_sizes must be an integer of at least 1, got 0"),
            ({"hidden_layer_sizes": (2.5,)}, "each of hidden_layer_sizes .*2.5"),
            ({"hidden_layer_sizes": 100}, "hidden_layer_sizes is 100, need a tuple of integers"),
            ({"hidden_layer_sizes": "100"}, "hidden_layer_sizes is '100', need a tuple of integers"),
            ({"dropout": 1.0}, "dropout is 1.0"),
        ],
    )
    def test_wrong_values_are_refused(self, iris, parameters, message):
        with pytest.raises(ValueError, match=message):
            DeepLDAClassifier(**parameters).fit(*iris)

    def test_images_have_none(self, images):
        with pytest.raises(ValueError, match=r"dropout is 0\.1, but convnet-small has fixed hidden layers"):
            DeepLDAClassifier(dropout=0.1, **FAST).fit(*images)


class TestSettings:
    def test_curves(self, iris):
        classifier = DeepLDAClassifier(max_epochs=30, random_state=0).fit(*iris)
        assert classifier.n_iter_ == len(classifier.loss_curve_) == 30
        assert classifier.loss_curve_[-1] < classifier.loss_curve_[0]
        assert not hasattr(classifier, "validation_scores_")

    def test_early_stopping(self, iris):
        classifier = DeepLDAClassifier(early_stopping=True, n_iter_no_change=3, random_state=0).fit(*iris)
        scores = classifier.validation_scores_
        assert len(scores) == classifier.n_iter_ < 100
        risen = scores.index(max(scores)) + 1
        # The learning rate falls from its peak after epoch 25 to 0 after epoch 100, so it is halved after 62.5.
        assert classifier.n_iter_ == max(risen, 63) + 3
        assert not hasattr(classifier.set_params(early_stopping=False, max_epochs=2).fit(*iris), "validation_scores_")

    @pytest.mark.parametrize("objective", ["lda", "rdlda", "dlda", "cce"])
    @pytest.mark.parametrize("embedding_dim", [None, 2, 6])
    def test_objectives(self, iris, objective, embedding_dim):
        classifier = DeepLDAClassifier(objective=objective, embedding_dim=embedding_dim, max_epochs=30, random_state=0)
        assert classifier.fit(*iris).score(*iris) > 0.9
        assert classifier.transform(iris[0]).shape == (150, 2)

    def test_dlda_is_alpha_one(self, iris):
        with pytest.raises(ValueError, match="dlda has no alpha"):
            DeepLDAClassifier(objective="dlda", alpha=0.3, **FAST).fit(*iris)

    def test_a_narrow_embedding_is_worth_one_warning(self, iris):
        with pytest.warns(SmallBatchWarning, match="use 2 to ") as caught:
            DeepLDAClassifier(embedding_dim=1, **CALIBRATED).fit(*iris)
        assert len(caught) == 1
        assert caught[0].filename == __file__

    def test_a_batch_that_cannot_be_larger_is_worth_none(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            DeepLDAClassifier(alpha=1.0, **FAST).fit([[0.0], [1.0], [2.0]], [0, 1, 1])

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"alpha": 2}, "alpha is 2"),
            ({"alpha": "1"}, "alpha is '1': input should be a valid number"),
            ({"lam": True}, "lam is True: input should be a valid number"),
            ({"lam": -1.0}, "lam is -1"),
            ({"statistic": "median"}, "statistic is 'median'"),
            ({"objective": "hinge"}, "objective is 'hinge'"),
            ({"predictor": "tree"}, "predictor .*'tree'"),
            ({"predictor": "softmax"}, "predictor must be None or one of hyperplanes, .*'softmax'"),
            ({"objective": "joint", "embedding_dim": 2}, "embedding_dim is 2, but objective joint"),
            ({"gce_q": 0}, "gce_q is 0"),
            ({"max_epochs": 0}, "max_epochs .*0"),
            ({"batch_size": 1}, "batch_size .*1"),
            ({"batch_size": 2.5}, "batch_size .*2.5"),
            ({"learning_rate": 0}, "learning_rate is 0"),
            ({"early_stopping": True, "validation_fraction": 1.5}, "validation_fraction .*1.5"),
            ({"early_stopping": True, "validation_fraction": None}, "validation_fraction must be a number, got None"),
            ({"class_weight": "fair"}, "class_weight .*'fair'"),
            ({"class_weight": {0: -1.0}}, "positive finite numbers"),
            ({"device": "abacus"}, "device 'abacus'"),
        ],
    )
    def test_wrong_values_are_refused(self, iris, parameters, message):
        with pytest.raises((ValueError, TypeError), match=message):
            DeepLDAClassifier(**parameters).fit(*iris)

    @pytest.mark.parametrize("others", [{}, {"objective": "joint", "scatter": "dorfer"}, {"subclasses": 2}])
    def test_a_statistic_may_be_a_function(self, iris, others):
        def smallest(eigenvalues):
            return eigenvalues[eigenvalues <= eigenvalues[0] + 1].mean()

        parameters = {"smallest_cluster": 5, **others, "max_epochs": 5, "random_state": 0}
        own = clone(DeepLDAClassifier(statistic=smallest, **parameters))
        assert own.get_params()["statistic"] is smallest
        named = DeepLDAClassifier(statistic="smallest", **parameters)
        np.testing.assert_allclose(own.fit(*iris).loss_curve_, named.fit(*iris).loss_curve_, rtol=1e-4)

    def test_numbers_of_numpy(self, iris):
        classifier = DeepLDAClassifier(alpha=np.float32(0.5), max_epochs=np.int64(2), batch_size=np.int32(50))
        assert classifier.fit(*iris).n_iter_ == 2


class TestLabelsAndClasses:
    def test_one_class_is_refused(self):
        with pytest.raises(ValueError, match="number of classes has to be greater than one; got 1 class"):
            DeepLDAClassifier().fit([[0.0], [1.0]], [1, 1])

    def test_not_fitted(self, iris):
        with pytest.raises(NotFittedError):
            DeepLDAClassifier().transform(iris[0])
        with pytest.raises(NotFittedError):
            DeepLDAClassifier().save("nowhere")

    @pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")
    @pytest.mark.parametrize("counts", [(1, 1), (1, 1, 1), (60, 1), (60, 3, 1), (2, 30, 30)])
    @pytest.mark.parametrize("objective", ["lda", "cce"])
    def test_few_samples_of_a_class(self, counts, objective):
        labels = np.repeat(np.arange(len(counts)), counts)
        rows = np.random.default_rng(0).normal(size=(len(labels), 3)) * 0.1 + labels[:, None]
        classifier = DeepLDAClassifier(objective=objective, batch_size=10, max_epochs=20, random_state=0)
        assert classifier.fit(rows, labels).score(rows, labels) > 0.6

    def test_batches_are_large_enough_for_what_is_left_to_train_on(self):
        rows = np.random.default_rng(0).normal(size=(102, 3))
        labels = np.array([0] * 100 + [1] * 2)
        settings = {"early_stopping": True, "validation_fraction": 0.4, "batch_size": 60, "max_epochs": 2}
        DeepLDAClassifier(random_state=0, **settings).fit(rows, labels)

    def test_early_stopping_needs_samples_to_spare(self):
        with pytest.raises(ValueError, match="more than one sample"):
            DeepLDAClassifier(early_stopping=True).fit([[0.0], [1.0]], [0, 1])


class TestCalibration:
    def test_probabilities_of_fresh_samples_can_be_trusted(self):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(3000, 30))
        labels = (rows[:, :2].sum(1) + rng.normal(size=3000) > 0).astype(int)
        raw, calibrated = (
            DeepLDAClassifier(calibrate=calibrate, random_state=0).fit(rows[:200], labels[:200])
            for calibrate in (False, True)
        )
        fresh, truth = rows[200:], labels[200:]
        np.testing.assert_array_equal(raw.decision_function(fresh), calibrated.decision_function(fresh))
        assert raw.model_.calibrated_on == 0
        assert calibrated.model_.calibrated_on == 200
        losses = [log_loss(truth, classifier.predict_proba(fresh)) for classifier in (raw, calibrated)]
        assert losses[1] < 0.65 < 1.0 < losses[0]
        excess = [c.predict_proba(fresh).max(1).mean() - c.score(fresh, truth) for c in (raw, calibrated)]
        # Networks trained on four fifths of 200 samples are worse, so the probabilities are a little too cautious.
        assert -0.1 < excess[1] < 0.02 < 0.15 < excess[0]

    def test_samples_held_out_for_early_stopping_are_enough(self, iris, monkeypatch):
        monkeypatch.setattr("deeplda.estimator_training.calibration_folds", None)
        classifier = DeepLDAClassifier(early_stopping=True, max_epochs=3, random_state=0).fit(*iris)
        assert classifier.model_.calibrated_on == 15

    def test_a_large_set_spares_some_samples(self, iris, monkeypatch):
        monkeypatch.setattr("deeplda.estimator_training.calibration_folds", None)
        monkeypatch.setattr("deeplda.estimator_inputs._MANY_SAMPLES", 150)
        monkeypatch.setattr("deeplda.estimator_inputs._HELD_OUT", 30)
        classifier = DeepLDAClassifier(**CALIBRATED).fit(*iris)
        assert classifier.model_.calibrated_on == 30
        assert classifier.model_.statistics.counts.sum() == 120
        assert not hasattr(classifier, "validation_scores_")

    @pytest.mark.parametrize(("n", "folds"), [(30, 5), (500, 5), (501, 5), (625, 4), (1000, 3), (2500, 1), (9000, 1)])
    def test_folds(self, n, folds):
        labels = np.random.default_rng(n).choice(4, size=n, p=[0.6, 0.3, 0.09, 0.01])
        labels[:4] = range(4)
        splits = calibration_folds(labels, seed=3)
        assert len(splits) == folds
        held_out = np.concatenate([held for _, held in splits])
        assert len(np.unique(held_out)) == len(held_out) >= min(500, n - 2 * 4)
        for rest, held in splits:
            assert sorted([*rest, *held]) == list(range(n))
            before, after = np.bincount(labels, minlength=4), np.bincount(labels[rest], minlength=4)
            np.testing.assert_allclose(before - after, np.where(before < 3, 0, before / 5), atol=1)
            assert (after >= np.minimum(before, 2)).all()
        assert all(map(np.array_equal, splits[0], calibration_folds(labels, seed=3)[0]))
        assert not np.array_equal(splits[0][1], calibration_folds(labels, seed=4)[0][1])

    def test_classes_too_small_to_be_split_are_not_calibrated(self):
        classifier = DeepLDAClassifier(**CALIBRATED).fit([[0.0], [1.0], [5.0], [6.0]], [0, 0, 1, 1])
        assert classifier.model_.calibrated_on == 0
        np.testing.assert_allclose(classifier.predict_proba([[0.5]]).sum(), 1)


# Steps so small that the weights stay as they are.
STILL = {"learning_rate": 1e-30, "weight_decay": 0.0, "calibrate": False, "max_epochs": 2, "warm_start": True}


class TestWarmStart:
    @pytest.mark.parametrize("parameters", [{}, {"objective": "cce", "embedding_dim": 5}, {"objective": "joint"}])
    def test_the_next_fit_starts_where_the_last_one_ended(self, iris, parameters):
        """Without batch normalisation, a fit without steps leaves the model as it is, whatever rows it sees."""
        network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, parameters.get("embedding_dim", 3)))
        classifier = DeepLDAClassifier(network=network, max_epochs=10, random_state=0, **parameters).fit(*iris)
        before = classifier.model_
        classifier.set_params(**STILL).fit(iris[0][::2], iris[1][::2])
        after = classifier.model_
        assert before is not after
        np.testing.assert_array_equal(after.transform(iris[0]), before.transform(iris[0]))
        for name in after.card.predictors:
            if name == "softmax":
                assert torch.equal(after.predictors[name].weight, before.predictors[name].weight)
        classifier.set_params(warm_start=False).fit(*iris)
        assert not np.allclose(classifier.model_.transform(iris[0]), before.transform(iris[0]))

    def test_batch_normalisation_and_images(self, images):
        pixels, labels = images
        classifier = DeepLDAClassifier(max_epochs=3, random_state=0, calibrate=False).fit(pixels, labels)
        before = classifier.model_
        classifier.set_params(**STILL).fit(pixels[::2] * 0.9, labels[::2])
        for name, parameter in classifier.model_.network.named_parameters():
            assert torch.equal(parameter, before.network.get_parameter(name))
        assert torch.equal(classifier.model_.normalisation.mean, before.normalisation.mean)

    def test_the_loss_goes_on_from_where_it_was(self, iris):
        classifier = DeepLDAClassifier(max_epochs=20, dropout=0.0, warm_start=True, random_state=0, calibrate=False)
        first = classifier.fit(*iris).loss_curve_
        second = classifier.fit(*iris).loss_curve_
        assert len(first) == len(second) == classifier.n_iter_ == 20
        assert second[0] == pytest.approx(first[-1], rel=0.02)
        assert second[-1] < first[-1] < first[0]

    def test_networks_for_calibration_start_anew(self, iris, monkeypatch):
        starts = []
        start_from = Classifier.start_from
        monkeypatch.setattr(Classifier, "start_from", lambda *both: (starts.append(both), start_from(*both)))
        classifier = DeepLDAClassifier(max_epochs=2, warm_start=True, random_state=0).fit(*iris)
        before = classifier.model_
        assert not starts
        assert classifier.fit(*iris).model_.calibrated_on == 150
        assert [model for _, model in starts] == [before]

    def test_other_samples_are_refused_and_the_fit_is_kept(self, iris, images):
        classifier = DeepLDAClassifier(warm_start=True, **FAST).fit(*iris)
        before = classifier.decision_function(iris[0])
        with pytest.raises(ValueError, match=r"continues a fit with classes \[0, 1, 2\], but there are now \[0, 1\]"):
            classifier.fit(iris[0][:100], iris[1][:100])
        with pytest.raises(ValueError, match="X has 3 features, but DeepLDAClassifier is expecting 4"):
            classifier.fit(iris[0][:, :3], iris[1])
        np.testing.assert_array_equal(classifier.decision_function(iris[0]), before)
        of_images = DeepLDAClassifier(warm_start=True, **FAST | {"max_epochs": 1}).fit(*images)
        with pytest.raises(ValueError, match=r"samples of shape \(1, 8, 8\), but there are now \(1, 8, 7\)"):
            of_images.fit(images[0][..., :7], images[1])

    def test_another_network_is_refused(self, iris):
        classifier = DeepLDAClassifier(warm_start=True, **FAST).fit(*iris)
        with pytest.raises(ValueError, match=r"differ from those that it should start from \('hidden.0.weight'"):
            classifier.set_params(hidden_layer_sizes=(5,)).fit(*iris)

    def test_a_loaded_classifier_goes_on(self, iris, tmp_path):
        first = DeepLDAClassifier(max_epochs=5, random_state=0, calibrate=False, warm_start=True).fit(*iris)
        first.save(tmp_path / "saved")
        loaded = DeepLDAClassifier.load(tmp_path / "saved")
        np.testing.assert_array_equal(
            *(classifier.fit(*iris).decision_function(iris[0]) for classifier in (first, loaded))
        )


def odds(classifier, rows):
    """The odds of the second of two classes, from the part of the probabilities that the scores decide."""
    share = float(classifier.model_.predictor.calibration.uniform_share)
    sharpened = (classifier.predict_proba(rows) - share / 2) / (1 - share)
    return sharpened[:, 1] / sharpened[:, 0]


class TestPriors:
    @pytest.mark.parametrize(
        "parameters",
        [{}, {"objective": "cce"}, {"predictor": "classic_lda"}],
    )
    def test_odds_are_those_of_bayes_with_other_class_frequencies(self, overlapping, parameters):
        """150 samples of the first class and 50 of the second have the priors 3/4 and 1/4."""
        rows, labels = overlapping
        plain, other = (
            DeepLDAClassifier(priors=priors, **parameters, **CALIBRATED).fit(rows, labels)
            for priors in (None, [0.9, 0.1])
        )
        assert plain.loss_curve_ == other.loss_curve_
        assert plain.model_.predictor.calibration.state_dict() == other.model_.predictor.calibration.state_dict()
        before, after = odds(plain, rows), odds(other, rows)
        clear = (before > 1e-6) & (before < 1e6)
        assert clear.sum() > 50
        np.testing.assert_allclose(after[clear], before[clear] * (0.1 / 0.9) / (50 / 150), rtol=1e-4)
        assert other.predict(rows).sum() < plain.predict(rows).sum()

    def test_the_frequencies_of_the_training_samples_change_nothing(self, overlapping):
        rows, labels = overlapping
        plain, same = (
            DeepLDAClassifier(priors=priors, **FAST).fit(rows, labels) for priors in (None, np.array([3, 1]))
        )
        np.testing.assert_array_equal(plain.decision_function(rows), same.decision_function(rows))

    def test_they_survive_a_new_class_and_a_folder(self, overlapping, tmp_path):
        rows, labels = overlapping
        classifier = DeepLDAClassifier(priors=(0.9, 0.1), **CALIBRATED).fit(rows, labels)
        classifier.save(tmp_path / "saved")
        loaded = DeepLDAClassifier.load(tmp_path / "saved")
        assert loaded.get_params()["priors"] == (0.9, 0.1)
        np.testing.assert_array_equal(loaded.predict_proba(rows), classifier.predict_proba(rows))
        loaded.model_.add_class(rows[:20] + 30, "far")
        np.testing.assert_allclose(loaded.model_.predictor.prior_shift, [np.log(0.9 / 0.75), np.log(0.1 / 0.25), 0])

    @pytest.mark.parametrize(
        "priors", [[0.5, 0.5, 0.5], [1.0, 0.0], [1.0, -1.0], [1.0, np.nan], 0.5, "equal", [[1, 1]]]
    )
    def test_wrong_values_are_refused(self, overlapping, priors):
        with pytest.raises(ValueError, match=r"priors is .*, need 2 positive numbers, in the order of classes_"):
            DeepLDAClassifier(priors=priors).fit(*overlapping)


class TestSampleWeight:
    @pytest.mark.parametrize("parameters", [{}, {"objective": "cce"}, {"subclasses": 2}, {"early_stopping": True}])
    def test_weight_zero_is_absence(self, iris, parameters):
        """To the last bit: samples without weight are left out before anything else happens."""
        weights = np.where(np.arange(150) % 4 == 0, 0.0, np.random.default_rng(0).uniform(0.2, 3, 150))
        kept = weights > 0
        weighted = DeepLDAClassifier(**parameters, **CALIBRATED).fit(*iris, sample_weight=weights)
        left_out = DeepLDAClassifier(**parameters, **CALIBRATED).fit(iris[0][kept], iris[1][kept], weights[kept])
        np.testing.assert_array_equal(weighted.predict_proba(iris[0]), left_out.predict_proba(iris[0]))

    def test_a_class_without_weight_is_absent(self, iris):
        classifier = DeepLDAClassifier(**FAST).fit(*iris, sample_weight=(iris[1] != 1) * 1.0)
        assert classifier.classes_.tolist() == [0, 2]

    def test_equal_weights_change_nothing_but_rounding(self, iris):
        plain = DeepLDAClassifier(**FAST).fit(*iris)
        ones, halves = (DeepLDAClassifier(**FAST).fit(*iris, np.full(150, weight)) for weight in (1.0, 0.5))
        np.testing.assert_array_equal(plain.decision_function(iris[0]), ones.decision_function(iris[0]))
        np.testing.assert_allclose(plain.decision_function(iris[0]), halves.decision_function(iris[0]), rtol=1e-3)

    @pytest.mark.parametrize("objective", ["lda", "cce", "gce", "joint"])
    @pytest.mark.parametrize("predictor", ["hyperplanes", "classic_lda"])
    def test_a_linear_network_in_one_batch_learns_as_from_repeated_samples(self, overlapping, objective, predictor):
        """Without batch normalisation and dropout, weights and repetition differ only in rounding."""
        rows, labels = overlapping
        weights = np.random.default_rng(0).integers(0, 4, 200)
        copies = np.repeat(np.arange(200), weights)
        parameters = {
            "network": nn.Linear(2, 2), "batch_size": 1000, "learning_rate": 0.01, "objective": objective,
            "predictor": predictor, **FAST,
        }  # fmt: skip
        weighted = DeepLDAClassifier(**parameters).fit(rows, labels, weights)
        repeated = DeepLDAClassifier(**parameters).fit(rows[copies], labels[copies])
        np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-4)
        if predictor == "classic_lda" or objective in ("cce", "gce"):
            # Hyperplanes also shift the odds by the weights of the classes, which repeated samples do not.
            np.testing.assert_allclose(weighted.predict_proba(rows), repeated.predict_proba(rows), rtol=1e-3)
        np.testing.assert_allclose(weighted.xbar_, repeated.xbar_, rtol=1e-3, atol=1e-4)
        if objective in ("lda", "joint"):
            np.testing.assert_allclose(weighted.model_.statistics.counts, np.bincount(labels, weights))
            np.testing.assert_allclose(weighted.mahalanobis(rows), repeated.mahalanobis(rows), rtol=1e-3)

    def test_they_count_in_calibration(self, overlapping):
        """Held-out samples with the weight of two calibrate like two samples."""
        rows, labels = overlapping
        weights = np.random.default_rng(0).integers(1, 4, 200).astype(float)
        fitted = DeepLDAClassifier(**FAST).fit(rows, labels)
        held_out = Part(rows, labels, weights=weights)
        copies = np.repeat(np.arange(200), weights.astype(int))
        found = []
        for part in (held_out, Part(rows[copies], labels[copies])):
            calibrate_model(fitted.model_, gather_scores(fitted.model_, part))
            found.append([float(value) for value in fitted.model_.predictor.calibration.state_dict().values()][:2])
        assert found[0] == pytest.approx(found[1], rel=1e-6)

    def test_they_count_in_early_stopping(self, overlapping):
        """If only samples of one class have weight, the accuracy is the fraction of them that is found."""
        rows, labels = overlapping
        weights = np.where(labels == 1, 1.0, 1e-9)
        settings = {"early_stopping": True, "max_epochs": 3, "random_state": 0, "validation_fraction": 0.3}
        classifier = DeepLDAClassifier(**settings).fit(rows, labels, weights)
        assert all(score * 15 == pytest.approx(round(score * 15), abs=1e-5) for score in classifier.validation_scores_)

    def test_metadata_routing(self, overlapping):
        rows, labels = overlapping
        weights = np.where(labels == 1, 9.0, 1.0)
        with config_context(enable_metadata_routing=True):
            estimator = DeepLDAClassifier(**FAST).set_fit_request(sample_weight=True)
            pipeline = make_pipeline(PCA(2), estimator).fit(rows, labels, sample_weight=weights)
        components = PCA(2).fit_transform(rows)
        alone = DeepLDAClassifier(**FAST).fit(components, labels, weights)
        np.testing.assert_array_equal(pipeline.predict_proba(rows), alone.predict_proba(components))

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            (np.full(150, -1.0), "Negative values in data passed to `sample_weight`"),
            (np.full(150, np.nan), "contains NaN"),
            (np.ones(149), r"sample_weight\.shape"),
            (np.zeros(150), "Sample weights must contain at least one non-zero number"),
        ],
    )
    def test_wrong_weights_are_refused(self, iris, weights, message):
        with pytest.raises(ValueError, match=message):
            DeepLDAClassifier().fit(*iris, sample_weight=weights)

    def test_unbiased_covariances_have_no_weights(self, iris):
        for parameters, weights in (({}, np.arange(150)), ({"class_weight": {1: 2.0}}, None)):
            classifier = DeepLDAClassifier(scatter="dorfer", statistic="hotelling", **parameters)
            with pytest.raises(ValueError, match="scatter is 'dorfer' but samples have weights"):
                classifier.fit(*iris, sample_weight=weights)


class TestClassWeight:
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"objective": "cce"},
            {"objective": "joint", "predictor": "classic_lda"},
            {"subclasses": 2, "smallest_cluster": 5},
            {"early_stopping": True, "scatter": "sum"},
        ],
    )
    def test_a_dict_with_the_inverse_frequencies_is_balanced(self, overlapping, parameters):
        rows, labels = overlapping
        balanced, by_dict = (
            DeepLDAClassifier(class_weight=weight, **parameters, **CALIBRATED).fit(rows, labels)
            for weight in ("balanced", {0: 200 / (2 * 150), 1: 200 / (2 * 50)})
        )
        assert balanced.loss_curve_ == by_dict.loss_curve_
        np.testing.assert_array_equal(balanced.predict_proba(rows), by_dict.predict_proba(rows))

    @pytest.mark.parametrize("objective", ["lda", "cce", "gce", "joint"])
    def test_they_are_sample_weights(self, overlapping, objective):
        rows, labels = overlapping
        by_class = DeepLDAClassifier(objective=objective, class_weight={1: 5.0}, **CALIBRATED).fit(rows, labels)
        weights = np.where(labels == 1, 5.0, 1.0)
        by_sample = DeepLDAClassifier(objective=objective, **CALIBRATED).fit(rows, labels, weights)
        assert by_class.loss_curve_ == by_sample.loss_curve_
        np.testing.assert_array_equal(by_class.predict_proba(rows), by_sample.predict_proba(rows))
        plain = DeepLDAClassifier(objective=objective, **CALIBRATED).fit(rows, labels)
        assert plain.loss_curve_ != by_class.loss_curve_
        assert by_class.predict(rows).sum() > plain.predict(rows).sum()

    def test_weights_of_one_are_none(self, overlapping):
        rows, labels = overlapping
        plain, ones = (
            DeepLDAClassifier(class_weight=weight, **CALIBRATED).fit(rows, labels) for weight in (None, {0: 1, 1: 1.0})
        )
        np.testing.assert_array_equal(plain.predict_proba(rows), ones.predict_proba(rows))

    @pytest.mark.parametrize("class_weight", ["balanced", {1: 7.0}])
    def test_a_class_can_be_added(self, overlapping, class_weight):
        rows, labels = overlapping
        classifier = DeepLDAClassifier(class_weight=class_weight, **CALIBRATED).fit(rows, labels)
        model = classifier.model_
        totals = [100, 100] if class_weight == "balanced" else [150, 350]
        np.testing.assert_allclose(model.statistics.counts, totals)
        before = model.predictor.calibration.state_dict()
        model.add_class(rows[:20] + 30, "far")
        np.testing.assert_allclose(model.statistics.counts, [*totals, 20])
        assert model.predictor.calibration.state_dict() == before
        assert (model.predict(rows[:20] + 30) == "far").all()

    def test_they_do_not_shift_the_odds_a_second_time(self):
        """Two Gaussian classes, 9 to 1: trained as balanced, the border is in the middle, whatever the predictor."""
        rng = np.random.default_rng(0)
        labels = (np.arange(3_000) % 10 == 0).astype(int)
        rows = rng.normal(size=(3_000, 1)) + 2 * labels[:, None]
        for predictor in ("hyperplanes", "nearest_mean", "classic_lda"):
            settings = {"class_weight": "balanced", "predictor": predictor, "hidden_layer_sizes": (), **FAST}
            classifier = DeepLDAClassifier(**settings).fit(rows, labels)
            assert not classifier.model_.predictor.prior_shift.any()
            grid = np.linspace(-1, 3, 401)[:, None]
            assert grid[classifier.predict(grid) == 1].min() == pytest.approx(1, abs=0.15)

    def test_labels_left_out_weigh_one(self, overlapping):
        rows, labels = overlapping
        classifiers = [DeepLDAClassifier(class_weight=w, **FAST).fit(rows, labels) for w in ({1: 3}, {0: 1.0, 1: 3.0})]
        np.testing.assert_array_equal(*(classifier.predict_proba(rows) for classifier in classifiers))

    def test_labels_that_do_not_exist_are_refused(self, overlapping):
        with pytest.raises(ValueError, match=r"The classes, \[0, 1\], are not in class_weight"):
            DeepLDAClassifier(class_weight={7: 2.0}).fit(*overlapping)

    @pytest.mark.parametrize("predictor", ["hyperplanes", "classic_lda"])
    def test_balanced_finds_more_of_the_rare_class(self, overlapping, predictor):
        rows, labels = overlapping
        settings = {"network": nn.Linear(2, 2), "predictor": predictor, **FAST}
        plain, balanced = (
            DeepLDAClassifier(class_weight=weight, **settings).fit(rows, labels) for weight in (None, "balanced")
        )
        assert balanced.loss_curve_ != plain.loss_curve_
        if predictor == "classic_lda":
            assert balanced.predict(rows).sum() > plain.predict(rows).sum()
        assert balanced.predict(rows)[labels == 1].mean() > 0.5

    def test_with_cross_entropy_the_predictor_of_others_does_not_matter(self, overlapping):
        rows, labels = overlapping
        first, second = (
            DeepLDAClassifier(objective="cce", predictor=predictor, class_weight="balanced", **FAST).fit(rows, labels)
            for predictor in ("hyperplanes", "classic_lda")
        )
        np.testing.assert_array_equal(first.decision_function(rows), second.decision_function(rows))


def test_images_in_a_file_are_not_loaded(tmp_path, monkeypatch):
    """The classifier of a memory-mapped array is that of the array, and no array of all samples is ever made."""
    images = np.random.default_rng(0).integers(0, 256, (1200, 1, 64, 64), dtype=np.uint8)
    labels = np.arange(1200) % 3
    images[labels == 1] //= 2
    images.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.uint8, "r", shape=images.shape)
    network = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(16, 3))
    options = {"max_epochs": 1, "network": network, "random_state": 0, "early_stopping": True}
    expected = DeepLDAClassifier(**options).fit(images, labels)
    largest, read = 0, MappedRows.__getitem__

    def watched(self, key):
        nonlocal largest
        found = read(self, key)
        largest = max(largest, len(found) if isinstance(found, np.ndarray) else 0)
        return found

    monkeypatch.setattr(MappedRows, "__getitem__", watched)
    classifier = DeepLDAClassifier(**options).fit(mapped, labels)
    # The normalisation reads two megabytes at once, and a network processes 500 samples.
    assert 0 < largest <= max(500, 2**21 // 64**2)
    np.testing.assert_array_equal(classifier.predict_proba(mapped), expected.predict_proba(images))
    np.testing.assert_array_equal(classifier.transform(mapped), expected.transform(images))
