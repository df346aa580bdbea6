"""Training in bfloat16: the network alone, and only where it is asked for."""

import warnings

import pytest
import torch

from deeplda.data import load_data
from deeplda.training.batches import Batch
from deeplda.training.config import RunConfig
from deeplda.training.pipeline import run_to_end
from deeplda.training.progress import Progress
from deeplda.training.trainee import build_trainee

DATA = load_data("digits")
INPUTS, LABELS = torch.from_numpy(DATA.train.inputs[:100]), torch.from_numpy(DATA.train.labels[:100])


@pytest.fixture(autouse=True)
def _instructions(monkeypatch):
    """A processor that has them, wherever the tests run: without, training works too, and warns."""
    # torch 2.6 has no such function.
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)


def config(**more):
    return RunConfig(width=0.25, device="cpu", **more)


def seen_types(classifier):
    """Of the network's output and of what the loss is given, in one step."""
    seen = []
    classifier.model.network.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    classifier.criterion.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].dtype))
    classifier.step(Batch(INPUTS, LABELS), 0.01)
    return seen


@pytest.mark.parametrize("chunk_size", [None, 40])
@pytest.mark.parametrize("objective", ["rdlda", "cce"])
def test_the_network_runs_in_bfloat16_and_the_loss_in_float32(objective, chunk_size):
    classifier = build_trainee(config(precision="bfloat16", objective=objective, chunk_size=chunk_size), DATA)
    *outputs, features = seen_types(classifier)[: 2 if chunk_size is None else 4]
    assert set(outputs) == {torch.bfloat16}
    assert features == torch.float32
    assert {tensor.dtype for tensor in classifier.trained.parameters()} == {torch.float32}
    embedding = torch.from_numpy(classifier.model.transform(DATA.test.inputs))
    assert not torch.equal(embedding, embedding.bfloat16().float())


@pytest.mark.parametrize("precision", [None, "float32"])
def test_a_cpu_trains_in_float32_unless_told(precision):
    assert set(seen_types(build_trainee(config(precision=precision), DATA))) == {torch.float32}


def test_it_learns_as_well(tmp_path):
    found = {
        precision: run_to_end(config(precision=precision, epochs=5), tmp_path / precision, Progress()).summary
        for precision in ("float32", "bfloat16")
    }
    accuracy = {precision: summary.test.accuracy for precision, summary in found.items()}
    assert accuracy["bfloat16"] > 0.9
    assert accuracy["bfloat16"] == pytest.approx(accuracy["float32"], abs=0.03)


def test_a_processor_without_instructions_for_it_is_told_of(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
    with pytest.warns(UserWarning, match="slow: use --precision float32"):
        build_trainee(config(precision="bfloat16"), DATA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_trainee(config(), DATA)
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
        build_trainee(config(precision="bfloat16"), DATA)
