"""The paper's numbers, as the paper has them."""

import pytest

from deeplda.experiments.published import original_dlda, published_accuracy, published_tables


def test_every_cell_is_there():
    assert [(table.name, table.number, table.data, len(table.cells)) for table in published_tables()] == [
        ("stl10", 2, "stl10", 34), ("cifar10", 3, "cifar10", 34), ("subclasses", 4, "cifar10", 33),
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "total"), [(1, 2748.28), (2, 3112.98), (3, 3010.58)])
def test_the_cells_add_up(number, total):
    assert sum(cell.accuracy for cell in published_tables()[number - 1].cells) == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize(
    ("data", "predictor", "alpha", "subclasses", "accuracy"),
    [
        ("stl10", "hyperplanes", 0.0, 1, 81.1),
        ("stl10", "classic_lda", 0.2, 1, 81.7),
        ("stl10", "nearest_mean", 1.0, 1, 80.07),
        ("stl10", "softmax", None, 1, 78.26),
        ("cifar10", "hyperplanes", 0.6, 1, 92.29),
        ("cifar10", "nearest_mean", 0.9, 1, 91.15),
        ("cifar10", "classic_lda", 1.0, 1, 91.06),
        ("cifar10", "softmax", None, 1, 90.94),
        ("cifar10", "hyperplanes", 0.7, 2, 92.87),
        ("cifar10", "hyperplanes", 0.8, 3, 92.24),
        ("cifar10", "hyperplanes", 1.0, 4, 88.69),
    ],
)
def test_cells(data, predictor, alpha, subclasses, accuracy):
    assert published_accuracy(data, predictor, alpha, subclasses) == accuracy


@pytest.mark.parametrize(
    ("data", "predictor", "alpha", "subclasses"),
    [("digits", "hyperplanes", 0.2, 1), ("stl10", "hyperplanes", 0.25, 1), ("stl10", "hyperplanes", 0.2, 2)],
)
def test_nothing_is_invented(data, predictor, alpha, subclasses):
    assert published_accuracy(data, predictor, alpha, subclasses) is None


def test_the_papers_own_statements_hold_in_its_tables():
    """Every RDLDA beats DLDA by every predictor on CIFAR-10; the best alphas are 0.2, 0.6, and 0.7 with k=2."""
    stl, cifar, split = published_tables()
    for table, best in ((stl, (0.2, 1)), (cifar, (0.6, 1)), (split, (0.7, 2))):
        found = max((cell for cell in table.cells if cell.predictor == "hyperplanes"), key=lambda cell: cell.accuracy)
        assert (found.alpha, found.subclasses) == best
    dlda = {cell.predictor: cell.accuracy for cell in cifar.cells if cell.objective == "dlda"}
    assert all(cell.accuracy > dlda[cell.predictor] for cell in cifar.cells if cell.objective == "rdlda")


def test_the_original_dlda():
    found = original_dlda()
    assert (found.data, found.batch_size, found.accuracy) == ("stl10", 200, 81.16)
