"""Leave-one-out margins, beside a regression for every sample that leaves it out."""

import pytest
import torch

from deeplda.core.margins import leave_one_out_margins


def samples(n=60, classes=4, d=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    means = torch.randn(classes, d, generator=generator)
    return means[labels] + torch.randn(n, d, generator=generator), labels


def literal(features, labels, lam):
    """Weighted ridge regression on the indicators with an intercept, once for each sample, without this sample."""
    n, classes = len(labels), torch.unique(labels)
    indicators = (labels[:, None] == classes).double()
    weights = indicators @ (n / (len(classes) * indicators.sum(0)))
    rows = torch.cat([features.double(), torch.ones(n, 1)], 1)
    ridge = n * lam * torch.eye(rows.shape[1], dtype=torch.float64)
    ridge[-1, -1] = 0
    margins = []
    for place in range(n):
        rest = torch.arange(n) != place
        weighted = rows[rest].T * weights[rest]
        scores = rows[place] @ torch.linalg.solve(weighted @ rows[rest] + ridge, weighted @ indicators[rest])
        own = indicators[place].bool()
        margins.append(scores[own][0] - scores[~own].max())
    return torch.stack(margins)


@pytest.mark.parametrize("lam", [0.0, 1e-3, 0.5])
def test_the_same_as_leaving_every_sample_out(lam):
    features, labels = samples()
    torch.testing.assert_close(leave_one_out_margins(features, labels, lam), literal(features, labels, lam))


def test_names_of_classes_and_an_offset_change_nothing_and_neither_does_the_scale():
    features, labels = samples()
    margins = leave_one_out_margins(features, labels, 0.0)
    torch.testing.assert_close(leave_one_out_margins(features, 7 * labels + 100, 0.0), margins)
    torch.testing.assert_close(leave_one_out_margins(1000 * features + 50, labels, 0.0), margins, rtol=1e-3, atol=1e-4)


def test_a_wrong_label_has_the_lowest_margin():
    features, labels = samples(n=200)
    features += 6 * torch.nn.functional.one_hot(labels, 5)
    wrong = labels.clone()
    wrong[17] = (labels[17] + 1) % 4
    margins = leave_one_out_margins(features, wrong, 1e-3)
    assert margins.argmin() == 17
    assert margins[17] < -0.5
    assert leave_one_out_margins(features, labels, 1e-3).median() > 0.7


def test_a_sample_alone_in_its_class_has_no_margin():
    features, labels = samples()
    labels[3] = 9
    found = leave_one_out_margins(features, labels, 1e-3)
    assert found.isnan().nonzero().flatten().tolist() == [3]
    assert leave_one_out_margins(features, torch.zeros_like(labels), 1e-3).isnan().all()
    assert leave_one_out_margins(features * torch.nan, labels, 1e-3).isnan().all()


def test_fewer_samples_than_dimensions():
    features, _ = samples(n=6, classes=2, d=20)
    assert leave_one_out_margins(features, torch.arange(6) % 2, 1e-3).isfinite().all()
