"""`DeepLDAClassifier` on data frames with categories, dates and missing values."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from deeplda import DeepLDAClassifier, load
from deeplda.errors import InputError

FAST = {"max_epochs": 10, "random_state": 0, "calibrate": False}
SIZE = 240


@pytest.fixture(scope="module")
def rows():
    """A frame and labels that only the category and the number tell together."""
    rng = np.random.default_rng(0)
    labels = rng.choice(["left", "right"], SIZE)
    right = labels == "right"
    number = np.where(right, 1.5, -1.5) + rng.normal(size=SIZE)
    number[::8] = np.nan
    category = np.where(rng.random(SIZE) < 0.2, None, np.where(right, "b", "a"))
    day = pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 500, SIZE), unit="D")
    return pd.DataFrame({"number": number, "category": pd.Categorical(category), "day": day}), labels


@pytest.fixture(scope="module")
def fitted(rows):
    return DeepLDAClassifier(**FAST | {"calibrate": True}).fit(*rows)


def test_it_learns_from_categories_and_missing_values(fitted, rows):
    X, y = rows
    assert fitted.score(X, y) > 0.9
    missing = X.assign(number=np.nan)
    assert fitted.score(missing, y) > 0.8
    assert fitted.model_.calibrated_on > 0


def test_names_and_numbers_of_columns_are_those_of_the_frame(fitted, rows):
    assert fitted.feature_names_in_.tolist() == ["number", "category", "day"]
    assert fitted.n_features_in_ == 3
    assert fitted.model_.card.sample_shape == (len(fitted.model_.card.table.outputs),)
    X, _ = rows
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(X[["category", "number", "day"]])
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(X.drop(columns="day"))


def test_a_frame_without_rows_gets_scikit_learns_error(fitted, rows):
    X, y = rows
    sentence = (
        r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required by DeepLDAClassifier"
    )
    for use in (fitted.predict, fitted.predict_proba, fitted.transform, lambda X: clone(fitted).fit(X, y[:0])):
        with pytest.raises(ValueError, match=sentence):
            use(X[:0])


def test_a_row_gets_the_same_answer_to_the_last_bit_in_any_company(fitted, rows):
    X, _ = rows
    alone = np.concatenate([fitted.predict_proba(X.iloc[[place]]) for place in range(20)])
    np.testing.assert_array_equal(alone, fitted.predict_proba(X)[:20])


def test_unseen_categories_and_new_types_are_predicted(fitted, rows):
    X, _ = rows
    new = X.head(3).assign(category=["c", "a", None], number=[None, 1, 2], day="2024-02-29")
    assert np.isfinite(fitted.predict_proba(new)).all()


def test_the_encoding_is_saved_with_the_classifier(fitted, rows, tmp_path):
    X, _ = rows
    fitted.save(tmp_path / "c")
    again = DeepLDAClassifier.load(tmp_path / "c")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.n_features_in_ == 3
    model = load(tmp_path / "c")
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(model.predict(pa.Table.from_pandas(X)), fitted.predict(X))


def test_columns_that_are_left_out_are_reported(rows):
    X, y = rows
    more = X.assign(customer=range(SIZE), country="AT")
    with pytest.warns(UserWarning, match="columns left out: customer .*, country .it is the same in every row."):
        fitted = DeepLDAClassifier(**FAST).fit(more, y)
    assert fitted.n_features_in_ == 5
    assert fitted.score(more, y) > 0.8


def test_a_frame_of_numbers_is_the_same_as_an_array(rows):
    X, y = rows
    numbers = pd.DataFrame({"a": X["number"].fillna(0), "row": np.arange(SIZE, dtype=float)})
    of_frame, of_array = (DeepLDAClassifier(**FAST).fit(data, y) for data in (numbers, numbers.to_numpy()))
    np.testing.assert_array_equal(of_frame.predict_proba(numbers), of_array.predict_proba(numbers.to_numpy()))
    assert of_frame.model_.card.table is None


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_after_a_frame_an_array_is_rejected(fitted, rows):
    with pytest.raises(InputError, match="X is a ndarray, but the estimator was fitted on a data frame"):
        fitted.predict(rows[0].to_numpy())


@pytest.mark.parametrize("labels", [[None] * SIZE, np.full(SIZE, np.nan), ["x"] * 3, [[1, 2]] * SIZE])
def test_labels_are_checked(rows, labels):
    with pytest.raises(ValueError, match=r"y|inconsistent|shape"):
        DeepLDAClassifier(**FAST).fit(rows[0], labels)


def test_in_a_pipeline_and_a_grid_search(rows):
    X, y = rows
    pipeline = make_pipeline(FunctionTransformer(lambda frame: frame.drop(columns="day")), DeepLDAClassifier(**FAST))
    search = GridSearchCV(pipeline, {"deepldaclassifier__alpha": [0.3, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8
    impute = make_column_transformer((SimpleImputer(), ["number"]), remainder="passthrough")
    impute.set_output(transform="pandas")
    assert make_pipeline(impute, DeepLDAClassifier(**FAST)).fit(X, y).score(X, y) > 0.8


def test_cross_validation_in_two_processes(rows):
    X, y = rows
    scores = cross_val_score(DeepLDAClassifier(**FAST), X, y, cv=2, n_jobs=2)
    assert scores.min() > 0.8
    np.testing.assert_array_equal(scores, cross_val_score(DeepLDAClassifier(**FAST), X, y, cv=2))


def test_an_unbalanced_frame_in_scikit_learns_tools():
    """Texts, dates, missing values and one row in eight of the rare class."""
    rng = np.random.default_rng(0)
    rare = np.arange(SIZE) % 8 == 0
    plan = np.where(rng.random(SIZE) < 0.1, None, np.where(rare, "gold", rng.choice(["basic", "plus"], SIZE)))
    spend = np.where(rng.random(SIZE) < 0.1, np.nan, rng.normal(size=SIZE) + 3 * rare)
    day = pd.Timestamp("2021-03-01") + pd.to_timedelta(rng.integers(0, 500, SIZE), unit="D")
    X = pd.DataFrame({"plan": plan.astype(object), "spend": spend, "day": day})
    y = np.where(rare, "rare", "common")
    classifier, balanced = DeepLDAClassifier(**FAST, class_weight="balanced"), "balanced_accuracy"
    pipeline = make_pipeline(FunctionTransformer(), classifier)
    search = GridSearchCV(pipeline, {"deepldaclassifier__alpha": [0.3, 1.0]}, scoring=balanced, cv=2).fit(X, y)
    assert search.best_score_ > 0.85
    calibrated = CalibratedClassifierCV(classifier, cv=2).fit(X, y)
    assert roc_auc_score(rare, calibrated.predict_proba(X)[:, 1]) > 0.95
    assert cross_val_score(classifier, X, y, scoring=balanced, cv=2, n_jobs=2).min() > 0.8


def test_inside_scikit_learns_calibration(rows):
    X, y = rows
    calibrated = CalibratedClassifierCV(clone(DeepLDAClassifier(**FAST)), cv=2).fit(X, y)
    assert calibrated.score(X, y) > 0.8


@pytest.mark.parametrize("options", [{"early_stopping": True}, {"subclasses": 2}, {"objective": "cce"}])
def test_options_work_on_frames(rows, options):
    X, y = rows
    assert DeepLDAClassifier(**FAST, **options).fit(X, y).score(X, y) > 0.8
