"""The loss inside of torch.func's transforms, compared with `backward`."""

import numpy as np
import pytest
import torch
from batches import COMBINATIONS, gaussian_batch, tensors
from torch.autograd import forward_ad

from deeplda import DeepLDALoss

# Forward mode in torch imports modules that use it.
pytestmark = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.script` is deprecated")
WAYS = {
    "grad": torch.func.grad,
    "grad_and_value": lambda function: lambda features: torch.func.grad_and_value(function)(features)[0],
    "vjp": lambda function: lambda features: torch.func.vjp(function, features)[1](torch.ones(()).double())[0],
    "jacrev": torch.func.jacrev,
}


def batch_and_gradient(criterion, h, y):
    features, labels = tensors(h, y)
    criterion(features, labels).backward()
    return features.detach(), labels, features.grad


@pytest.mark.parametrize(("statistic", "scatter", "class_weight"), COMBINATIONS)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("shape", [(60, 6, 4), (60, 3, 5)])
def test_gradients_are_those_of_backward(statistic, scatter, class_weight, alpha, shape):
    criterion = DeepLDALoss(statistic, alpha=alpha, scatter=scatter, class_weight=class_weight)
    criterion._checked = True
    features, labels, gradient = batch_and_gradient(criterion, *gaussian_batch(*shape))
    for way in WAYS.values():
        assert torch.equal(way(lambda rows: criterion(rows, labels))(features), gradient)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("statistic", ["wilks", lambda v: v.sqrt().sum()])
def test_gradients_of_functions_and_of_large_eigenvalues(way, statistic):
    h, y = gaussian_batch(60, 4, 3)
    h[:, 0] = np.array([0.0, 1.0, 3.0])[y] + 1e-6 * h[:, 0]
    criterion = DeepLDALoss(statistic, lam=0.0)
    features, labels, gradient = batch_and_gradient(criterion, h, y)
    assert torch.equal(way(lambda rows: criterion(rows, labels))(features), gradient)
    assert criterion.diagnostics.eigenvalues.max() > 1e8


def test_gradients_of_the_parameters_of_a_network():
    network, criterion = torch.nn.Linear(6, 5).double(), DeepLDALoss()
    inputs, labels = (tensor.detach() for tensor in tensors(*gaussian_batch()))
    criterion(network(inputs), labels).backward()

    def loss_of(parameters):
        return criterion(torch.func.functional_call(network, parameters, inputs), labels)

    found = torch.func.grad(loss_of)({name: value.detach() for name, value in network.named_parameters()})
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_several_upstream_gradients_at_once(alpha):
    criterion = DeepLDALoss(alpha=alpha)
    features, labels, gradient = batch_and_gradient(criterion, *gaussian_batch())
    features.requires_grad_()
    factors = torch.tensor([1.0, -2.0, 0.5]).double()
    (found,) = torch.autograd.grad(criterion(features, labels), features, factors, is_grads_batched=True)
    torch.testing.assert_close(found, factors[:, None, None] * gradient)


def test_a_second_derivative_is_refused():
    features, labels = (tensor.detach() for tensor in tensors(*gaussian_batch()))
    criterion = DeepLDALoss()
    # torch 2.6 itself refuses forward mode over reverse mode.
    refused = "differentiated only once|forward AD with aten::aminmax that does not support it"

    def gradient(rows):
        return torch.func.grad(lambda inner: criterion(inner, labels))(rows)

    for second in (torch.func.grad(lambda rows: gradient(rows).square().sum()), torch.func.jacfwd(gradient)):
        with pytest.raises(RuntimeError, match=refused):
            second(features)
    with pytest.raises(RuntimeError, match=refused):
        torch.func.hessian(lambda rows: criterion(rows, labels))(features)


def test_vmap_is_refused():
    features, labels = (tensor.detach() for tensor in tensors(*gaussian_batch()))
    criterion, several = DeepLDALoss(), features.expand(2, *features.shape)
    for function in (lambda rows: criterion(rows, labels), torch.func.grad(lambda rows: criterion(rows, labels))):
        with pytest.raises(
            TypeError, match=r"features is batched by torch\.vmap, need a dense tensor: call the loss in"
        ):
            torch.vmap(function)(several)
    with pytest.raises(TypeError, match=r"labels is batched by torch\.vmap"):
        torch.vmap(lambda ids: criterion(features, ids))(labels.expand(2, -1))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_forward_mode_is_refused(requires_grad):
    """Torch would differentiate the statistics itself, and its derivative of Pillai's is wrong."""
    features, labels = (tensor.detach() for tensor in tensors(*gaussian_batch()))
    criterion, message = DeepLDALoss("pillai"), "features has a forward-mode tangent, need reverse mode"
    with pytest.raises(RuntimeError, match=message):
        torch.func.jvp(lambda rows: criterion(rows, labels), (features,), (features,))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match=message):
        criterion(forward_ad.make_dual(features.clone().requires_grad_(requires_grad), features), labels)


def test_inputs_of_other_transforms_are_not_concerned():
    features, labels, _ = batch_and_gradient(DeepLDALoss(), *gaussian_batch())
    losses = torch.vmap(lambda factor: factor * DeepLDALoss()(features, labels))(torch.ones(3).double())
    assert losses.tolist() == [DeepLDALoss()(features, labels).item()] * 3
