"""`DeepLDAClassifier` on sparse matrices, which are a way to store samples and nothing else."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from deeplda import DeepLDAClassifier, load
from deeplda.data.sparse_rows import SparseRows

FAST = {"random_state": 0, "max_epochs": 5}


def samples(n, d):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = rng.poisson(0.3 + 0.5 * y[:, None] * (np.arange(d) < 10), size=(n, d)).astype(np.float64)
    return scipy.sparse.csr_array(X), y


@pytest.mark.parametrize("shape", [(120, 15), (60, 200)])
@pytest.mark.parametrize(
    "options", [{}, {"objective": "cce"}, {"class_weight": "balanced"}, {"early_stopping": True}, {"subclasses": 2}]
)
def test_results_are_those_of_the_dense_array(shape, options):
    X, y = samples(*shape)
    weights = np.random.default_rng(1).uniform(0, 2, len(y))
    weights[:3] = 0
    sparse, dense = (
        DeepLDAClassifier(**FAST, **options).fit(data, y, sample_weight=weights) for data in (X, X.toarray())
    )
    np.testing.assert_allclose(sparse.loss_curve_, dense.loss_curve_, rtol=1e-3)
    for method in ("predict_proba", "decision_function", "transform"):
        expected = getattr(dense, method)(X.toarray())
        found = getattr(sparse, method)(X)
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
        # The same model gives the same bytes.
        np.testing.assert_array_equal(getattr(dense, method)(X), expected)


@pytest.mark.parametrize("shape", [(600, 700), (2_000, 300)])
def test_the_matrix_is_never_dense_as_a_whole(shape, monkeypatch):
    X, y = samples(*shape)
    monkeypatch.setattr("deeplda.estimator_inputs._BLOCK_SIZE", X.shape[0] * 10)
    largest, dense = 0, type(X).toarray

    def watched(matrix, *others):
        nonlocal largest
        found = dense(matrix, *others)
        largest = max(largest, found.size)
        return found

    for kind in (scipy.sparse.csr_array, scipy.sparse.csc_array):
        monkeypatch.setattr(kind, "toarray", watched)
    classifier = DeepLDAClassifier(**FAST | {"max_epochs": 2}).fit(X, y)
    assert classifier.score(X, y) > 0.55
    assert 0 < largest <= 0.9 * X.shape[0] * X.shape[1]


def test_texts_in_a_pipeline():
    words = {"pets": "cat dog hamster purr bark fur", "sea": "ship sail wave harbour anchor tide"}
    rng = np.random.default_rng(0)
    labels = np.array(sorted(words))[rng.integers(0, 2, 80)]
    texts = [" ".join(rng.choice([*words[label].split(), "the", "a", "of"], 6)) for label in labels]
    pipeline = make_pipeline(TfidfVectorizer(), DeepLDAClassifier(**FAST)).fit(texts[:60], labels[:60])
    assert pipeline.score(texts[60:], labels[60:]) > 0.9


def test_a_saved_model_takes_sparse_matrices(tmp_path):
    X, y = samples(120, 15)
    classifier = DeepLDAClassifier(**FAST).fit(X, y)
    classifier.save(tmp_path / "model")
    again = DeepLDAClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), classifier.predict(X))
    model = load(tmp_path / "model")
    for format in ("csr", "csc", "coo"):
        np.testing.assert_array_equal(model.predict(X.asformat(format)), classifier.predict(X).astype(str))


def test_bad_values_and_shapes_are_rejected():
    X, y = samples(120, 15)
    bad = X.copy()
    bad.data[3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        DeepLDAClassifier(**FAST).fit(bad, y)
    classifier = DeepLDAClassifier(**FAST).fit(X, y)
    with pytest.raises(ValueError, match="14 features"):
        classifier.predict(X[:, :14])
    with pytest.raises(ValueError, match="NaN"):
        classifier.model_.predict(bad)


def test_rows_are_read_when_they_are_needed():
    X, _ = samples(20, 5)
    rows = SparseRows(X, lambda dense: (dense + 1).astype(np.float32))
    assert (rows.shape, rows.ndim, len(rows), rows.dtype) == ((20, 5), 2, 20, np.float32)
    places = np.array([4, 0, 4])
    np.testing.assert_array_equal(rows[places], X.toarray()[places] + 1)
    assert isinstance(rows[2:7], SparseRows)
    np.testing.assert_array_equal(rows[2:7], X.toarray()[2:7] + 1)
    np.testing.assert_array_equal(rows.take(places), rows[places])
