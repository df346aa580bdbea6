"""Rows, parameters and FLOPs compared with torch's own counter; the network is left unchanged."""

from itertools import pairwise
from math import prod
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from deeplda.errors import InputError
from deeplda.networks import LayerRow, build_network, describe
from deeplda.networks.inspection import output_width, require_sample_memory, sample_memory, samples_at_once

NETWORKS = [("dorfernet", (3, 33, 24)), ("convnet-small", (1, 9, 8)), ("mlp", (20,))]
LAYERS = {
    "grouped": (nn.Conv2d(4, 6, (3, 1), groups=2), (4, 8, 7)),
    "strided": (nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False), (3, 9, 9)),
    "dilated": (nn.Conv2d(3, 5, 3, dilation=2), (3, 9, 9)),
    "one axis": (nn.Conv1d(3, 5, 4), (3, 20)),
    "transposed": (nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (4, 5, 5)),
    "linear on a sequence": (nn.Linear(6, 4), (7, 6)),
}


def torch_count(network: nn.Module, sample_shape: tuple[int, ...]) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, *sample_shape))
    return counter.get_total_flops()


def is_product(row: LayerRow) -> bool:
    return "convolution" in row.layer or "linear" in row.layer


@pytest.mark.parametrize(("name", "shape"), NETWORKS)
def test_products_agree_with_torch_and_parameters_with_the_network(name: str, shape: tuple[int, ...]) -> None:
    network = build_network(name, shape, 10, width=0.25).eval()
    rows = describe(network, shape)
    assert sum(row.flops for row in rows if is_product(row)) == torch_count(network, shape)
    assert sum(row.parameters for row in rows) == sum(p.numel() for p in network.parameters())
    assert rows[-1].output_shape == (10,)


@pytest.mark.parametrize("name", LAYERS)
def test_products_of_every_kind_agree_with_torch(name: str) -> None:
    layer, shape = LAYERS[name]
    assert sum(row.flops for row in describe(layer, shape)) == torch_count(layer, shape) > 0


def test_rows_in_words_in_the_order_they_run() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 8, (3, 5), stride=2, padding=(1, 2), bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
        nn.Tanh(),
    )
    assert describe(network, (3, 8, 8)) == [
        LayerRow("3x5 convolution, 3 to 8 channels, stride 2, padding (1, 2)", (8, 4, 4), 360, 2 * 360 * 16),
        LayerRow("batch normalisation", (8, 4, 4), 16, 128),
        LayerRow("ReLU", (8, 4, 4), 0, 128),
        LayerRow("2x2 max-pooling", (8, 2, 2), 0, 32),
        LayerRow("dropout 0.25", (8, 2, 2), 0, 0),
        LayerRow("global average pooling", (8, 1, 1), 0, 8),
        LayerRow("flatten", (8,), 0, 0),
        LayerRow("linear, 8 to 4", (4,), 36, 64),
        LayerRow("Tanh", (4,), 0, 4),
    ]


def test_dorfernet_on_cifar() -> None:
    # Multiply-adds of the table's convolutions at 32 x 32, 16 x 16, 8 x 8 and 2 x 2.
    products = 2 * (
        1024 * 9 * (3 * 64 + 64 * 64)
        + 256 * 9 * (64 * 128 + 128 * 128)
        + 64 * 9 * (128 * 256 + 3 * 256 * 256)
        + 4 * (9 * 256 * 1024 + 1024 * 1024 + 1024 * 10)
    )
    # Batch normalisation and ReLU of every convolution, the three poolings, the average.
    elementwise = 2 * (2 * 64 * 1024 + 2 * 128 * 256 + 4 * 256 * 64 + 4 * (1024 + 1024 + 10))
    pooling = 64 * 256 + 128 * 64 + 256 * 16 + 10
    rows = describe(build_network("dorfernet", (3, 32, 32), 10), (3, 32, 32))
    assert sum(row.flops for row in rows) == products + elementwise + pooling


class Odd(nn.Module):
    """A parameter of its own beside a child, a layer used twice, a recurrent layer, a buffer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.linear = nn.Linear(3, 3)
        self.recurrent = nn.GRU(3, 2, batch_first=True)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.recurrent(self.linear(self.linear(x * self.scale)))[0]


def test_odd_networks_count_each_parameter_once_and_keep_their_buffers() -> None:
    network = Odd()
    rows = describe(network, (5, 3))
    assert [row.layer for row in rows] == ["linear, 3 to 3", "linear, 3 to 3", "GRU", "Odd"]
    assert [row.parameters for row in rows] == [12, 0, 42, 3]
    assert rows[2].output_shape == (5, 2)
    assert network.calls == 0


def test_network_is_left_as_it_was() -> None:
    network = build_network("convnet-small", (1, 8, 8), 4).train()
    network.features[1].eval()  # a frozen layer stays frozen, the others in training
    modes = [m.training for m in network.modules()]
    state = {key: value.clone() for key, value in network.state_dict().items()}
    describe(network, (1, 8, 8))
    assert [m.training for m in network.modules()] == modes
    torch.testing.assert_close(dict(network.state_dict()), state, rtol=0, atol=0)
    assert all(not m._forward_hooks for m in network.modules())
    assert all(p.grad is None for p in network.parameters())


def test_network_is_left_as_it_was_when_the_sample_does_not_suit_it() -> None:
    network = build_network("mlp", (5,), 4).train()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        describe(network, (6,))
    assert all(m.training and not m._forward_hooks for m in network.modules())


def test_other_precision_and_no_parameters() -> None:
    assert describe(nn.Linear(3, 2).double(), (3,)) == [LayerRow("linear, 3 to 2", (2,), 8, 12)]
    assert describe(nn.ReLU(), (3,)) == [LayerRow("ReLU", (3,), 0, 3)]


@pytest.mark.parametrize(("name", "shape"), [("dorfernet", (3, 33, 24)), ("convnet-small", (1, 9, 8))])
def test_the_memory_of_a_sample_is_that_of_its_largest_layer(name: str, shape: tuple[int, ...]) -> None:
    network = build_network(name, shape, 10, width=0.25)
    sizes = [prod(shape), *(prod(row.output_shape) for row in describe(network, shape))]
    assert sample_memory(network, shape).peak == 4 * max(before + after for before, after in pairwise(sizes))


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("name", "shape"), [*NETWORKS, ("fastnet", (3, 24, 24))])
def test_training_keeps_at_least_the_memory_that_is_claimed(
    name: str, shape: tuple[int, ...], precision: torch.dtype
) -> None:
    network, saved = build_network(name, shape, 10).train(), dict[int, int]()
    parameters = {parameter.data_ptr() for parameter in network.parameters()}

    def record(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in parameters:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    rounded = torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16)
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor), rounded:
        output = network(torch.randn(64, *shape))
    assert output.requires_grad  # so nothing was freed
    kept = 64 * sample_memory(network, shape).kept * precision.itemsize // 4
    assert kept <= sum(saved.values()) < 4 * kept


def test_no_more_than_512_mib_are_processed_at_once() -> None:
    assert samples_at_once(build_network("convnet-small", (1, 8, 8), 10), (1, 8, 8)) == 500
    network = build_network("convnet-small", (1, 400, 400), 10)
    count = samples_at_once(network, (1, 400, 400))
    assert count == 2**29 // sample_memory(network, (1, 400, 400)).peak
    assert count == samples_at_once(network.double(), (1, 400, 400)) > 1
    assert samples_at_once(network, (1, 10**5, 10**5)) == 1


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("side", [10**5, 10**9, 10**200])
def test_a_sample_that_no_memory_holds(side: int) -> None:
    network = build_network("convnet-small", (1, 8, 8), 10)
    with pytest.raises(InputError, match=r"a sample of shape .* does not fit in memory"):
        require_sample_memory(network, (1, side, side))
    assert network.training


def test_measuring_leaves_the_network_as_it_was() -> None:
    network = build_network("fastnet", (3, 24, 24), 4, width=0.25).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    sample_memory(network, (3, 24, 24))
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert network.training
    assert not any(module._forward_hooks for module in network.modules())


class _Outputs(nn.Module):
    """Returns an object with several outputs, like the models of Hugging Face."""

    def __init__(self, **outputs: Tensor | None) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, _inputs: Tensor) -> SimpleNamespace:
        return SimpleNamespace(**self.outputs)


@pytest.mark.parametrize(
    ("network", "do"),
    [
        (_Outputs(pooler_output=torch.zeros(1, 4)), r"return its \.pooler_output from the network's forward"),
        (
            _Outputs(pooler_output=None, last_hidden_state=torch.zeros(1, 9, 4)),
            r"return its \.last_hidden_state\[:, 0\]",
        ),
        (_Outputs(), "type SimpleNamespace, need a tensor .*: return a tensor from its forward"),
        (nn.Identity(), r"into \(1, 3, 8, 8\), need a tensor of shape \(1, embedding_dim\): flatten its output"),
    ],
)
def test_outputs_that_are_not_vectors_are_rejected(network: nn.Module, do: str) -> None:
    with pytest.raises(InputError, match=do):
        output_width(network, (3, 8, 8))
