"""Errors name what was received, what is needed and what to do."""

import re

import numpy as np
import pytest
import torch

from deeplda import DeepLDALoss
from deeplda.core.moments import class_moments
from deeplda.core.scatter import discriminant_eigenvalues

H, Y = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
NAN, INF = H.clone(), H.clone()
NAN[1, 2], INF[0, 0] = float("nan"), float("inf")

BATCHES = {
    "empty": (H[:0], Y[:0], ValueError, r"shape \(0, 3\), need at least one sample"),
    "no dimension": (H[:, :0], Y, ValueError, r"shape \(6, 0\), need at least one sample and one dimension"),
    "features 1-d": (H[:, 0], Y, ValueError, r"shape \(6,\), need \(n, d\): pass features.view\(-1, 1\)"),
    "features 4-d": (H[:, :, None, None], Y, ValueError, r"pass features.flatten\(1\)"),
    "labels 2-d": (H, Y[:, None], ValueError, r"labels has shape \(6, 1\), need \(6,\): pass labels.squeeze\(1\)"),
    "labels too few": (H, Y[:4], ValueError, r"labels has shape \(4,\), need \(6,\)"),
    "labels one-hot": (H, torch.eye(3, dtype=torch.long)[Y], ValueError, r"labels has shape \(6, 3\)"),
    "float labels": (H, Y.float(), TypeError, "labels has dtype torch.float32, need integer class ids"),
    "one-hot rows": (H, torch.eye(3)[Y], TypeError, r"need integer class ids: pass labels.argmax\(1\)"),
    "negative labels": (H, Y - 1, ValueError, "labels contains -1, need class ids >= 0"),
    "labels elsewhere": (H, Y.to("meta"), ValueError, r"labels is on meta, need cpu, .*: pass labels.to"),
    "NaN": (NAN, Y, ValueError, "1 NaN and 0 infinite values among 18"),
    "inf": (INF, Y, ValueError, "0 NaN and 1 infinite values among 18"),
    "integer features": (H.long(), Y, TypeError, "features has dtype torch.int64, need floating point"),
    "complex features": (H.to(torch.complex64), Y, TypeError, "features has dtype torch.complex64"),
    "sparse features": (H.to_sparse(), Y, TypeError, r"layout torch.sparse_coo, need .*: pass features.to_dense\(\)"),
    "sparse labels": (
        H,
        Y.to_sparse(),
        TypeError,
        r"labels has layout torch.sparse_coo, need .*: pass labels.to_dense",
    ),
    "meta features": (H.to("meta"), Y, TypeError, "features is on the meta device, without values"),
    "float8": (
        H.to(torch.float8_e4m3fn),
        Y,
        TypeError,
        r"dtype torch.float8_e4m3fn, need 16 bits .* features.float\(\)",
    ),
    "numpy features": (H.numpy(), Y, TypeError, "features is of type ndarray, need a tensor"),
    "list of labels": (H, Y.tolist(), TypeError, "labels is of type list, need a tensor"),
}
every_batch = pytest.mark.parametrize(("features", "labels", "error", "message"), BATCHES.values(), ids=BATCHES.keys())


@every_batch
@pytest.mark.parametrize("call", [DeepLDALoss(), discriminant_eigenvalues, class_moments])
def test_bad_batches(call, features, labels, error, message):
    with pytest.raises(error, match=message):
        call(features, labels)


@pytest.mark.filterwarnings("ignore:.*prototype stage:UserWarning", "ignore:Sparse CSR:UserWarning")
def test_arrays_that_are_not_dense():
    """Creating them warns, so they are not in the table above."""
    nested = [torch.nested.nested_tensor([H[:2], H[2:]], layout=layout) for layout in (torch.strided, torch.jagged)]
    for features in nested:
        with pytest.raises(
            TypeError, match=r"features is a nested tensor, need .*: pass torch.cat\(features.unbind\(\)"
        ):
            DeepLDALoss()(features, Y)
    with pytest.raises(TypeError, match=r"layout torch.sparse_csr, need .*: pass features.to_dense\(\)"):
        DeepLDALoss()(H.to_sparse_csr(), Y)


@pytest.mark.parametrize("call", [DeepLDALoss(), discriminant_eigenvalues])
def test_one_class_alone(call):
    with pytest.raises(ValueError, match="all 6 samples belong to class 4, need at least two classes in a batch"):
        call(H, torch.full((6,), 4))


OPTIONS = {
    "alpha above": ({"alpha": 1.1}, r"alpha is 1.1, need 0 to 1"),
    "alpha below": ({"alpha": -0.1}, r"alpha is -0.1"),
    "alpha nan": ({"alpha": float("nan")}, "alpha is nan"),
    "lam below": ({"lam": -1e-3}, "lam is -0.001, need a finite number >= 0"),
    "lam inf": ({"lam": float("inf")}, "lam is inf"),
    "scatter": ({"scatter": "mean"}, "scatter is 'mean', need one of 'pooled', 'sum', 'dorfer'"),
    "class_weight": ({"class_weight": "even"}, "class_weight is 'even', need one of 'balanced', or None"),
    "dorfer weighted": ({"scatter": "dorfer", "class_weight": "balanced"}, "need no class weights"),
}
LOSS_OPTIONS = {
    "statistic": ({"statistic": "roy"}, "statistic is 'roy', need one of 'smallest', .*, or a callable"),
    "epsilon": ({"epsilon": -1.0}, "epsilon is -1.0, need a number >= 0"),
    "epsilon nan": ({"epsilon": float("nan")}, "epsilon is nan"),
    "dorfer wilks": (
        {"scatter": "dorfer", "statistic": "wilks"},
        "statistic is 'wilks', need 'smallest' or 'hotelling'",
    ),
    "dorfer pillai": ({"scatter": "dorfer", "statistic": "pillai"}, "use scatter 'pooled'"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS.keys())
def test_bad_options_of_the_scatters(options, message):
    with pytest.raises(ValueError, match=message):
        DeepLDALoss(**options)
    with pytest.raises(ValueError, match=message):
        discriminant_eigenvalues(H, Y, **options)


@pytest.mark.parametrize(("options", "message"), LOSS_OPTIONS.values(), ids=LOSS_OPTIONS.keys())
def test_bad_options_of_the_loss(options, message):
    with pytest.raises(ValueError, match=message):
        DeepLDALoss(**options)


@pytest.mark.parametrize("name", ["alpha", "lam", "epsilon"])
def test_options_are_not_trained(name):
    """float() would silently freeze them."""
    for value in (torch.nn.Parameter(torch.tensor(0.5)), torch.tensor(0.5, requires_grad=True)):
        with pytest.raises(TypeError, match=f"{name} is a tensor that requires a gradient, need a number"):
            DeepLDALoss(**{name: value})
    assert getattr(DeepLDALoss(**{name: torch.tensor(0.5)}), name) == 0.5


NOT_A_NUMBER = ["1", "x", True, None, 1j, [1.0], {}, np.array([0.5, 0.5]), torch.tensor([0.5, 0.5]), np.bool_(True)]


@pytest.mark.parametrize("value", NOT_A_NUMBER, ids=repr)
@pytest.mark.parametrize("name", ["alpha", "lam", "epsilon"])
def test_options_that_are_not_numbers(name, value):
    """They once raised errors about operators, without the name of the option."""
    message = re.escape(f"{name} must be a number, got {value!r}")
    with pytest.raises(TypeError, match=message):
        DeepLDALoss(**{name: value})
    if name != "epsilon":
        with pytest.raises(TypeError, match=message):
            discriminant_eigenvalues(H, Y, **{name: value})


@pytest.mark.parametrize("value", [1, np.float32(0.5), np.int64(1), np.array(0.5), torch.tensor(0.5)], ids=repr)
def test_numbers_of_any_type(value):
    criterion = DeepLDALoss(alpha=value, lam=value, epsilon=value)
    assert criterion.alpha == criterion.lam == criterion.epsilon == float(value)
    assert type(criterion.alpha) is float


@pytest.mark.parametrize("name", ["statistic", "scatter", "class_weight"])
def test_arrays_are_not_choices(name):
    with pytest.raises(ValueError, match=f"{name} is array"):
        DeepLDALoss(**{name: np.array(["pooled", "sum"])})


@pytest.mark.parametrize("value", [[1.0] * 6, np.ones(6), 2.0, "1"], ids=repr)
def test_sample_weights_are_a_tensor(value):
    with pytest.raises(TypeError, match=r"sample_weight is of type .*, need a tensor"):
        class_moments(H, Y, value)


@pytest.mark.filterwarnings("ignore::deeplda.batch_rule.SmallBatchWarning")
def test_a_failed_batch_leaves_the_loss_usable():
    criterion = DeepLDALoss()
    with pytest.raises(ValueError, match="NaN"):
        criterion(NAN, Y)
    assert np.isfinite(criterion(H, Y).item())
