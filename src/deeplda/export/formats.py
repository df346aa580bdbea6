"""A model as a traced graph, and that graph as the bytes of a file and back."""

from __future__ import annotations

import copy
import io
import json
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeplda import __version__
from deeplda.errors import InputError, got
from deeplda.export.verification import OUTPUTS, Runner
from deeplda.model import Model


class InferenceGraph(nn.Module):
    """Samples -> scores, probabilities and embedding, on the CPU in eval mode; the model itself stays as it is."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        # Traced in channels_last, the strides become part of the graph: a flatten turns into a gather of single values.
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # missing in torch's stubs
        for name in model.card.predictors[1:]:
            del self.model.predictors[name]

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        embedding = self.model.network(self.model.normalisation(inputs))
        scores = self.model.class_scores(embedding)
        return {"scores": scores, "probabilities": scores.softmax(1), "embedding": embedding}


def traced(model: Model, inputs: NDArray[Any]) -> torch.export.ExportedProgram:
    """The graph of a model for samples of the dtype of `inputs`, any number of them."""
    # Two zeros: one sample would fix the batch size at 1, and the example is kept in the file.
    example = torch.as_tensor(np.zeros_like(inputs, shape=(2, *model.card.sample_shape)))
    batch = torch.export.Dim("batch")
    program = torch.export.export(InferenceGraph(model), (example,), dynamic_shapes=({0: batch},), strict=False)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)  # it holds paths of this machine
    return program


def require_onnx() -> None:
    """Raise InputError where the extra for ONNX is not installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError:
            raise InputError(
                got(f"{name} cannot be imported", need="it for ONNX", do="pip install 'deeplda[export]'")
            ) from None


def _properties(model: Model) -> dict[str, Any]:
    return {
        "format": 1,
        "deeplda_version": __version__,
        "class_names": model.class_names,
        "sample_shape": model.card.sample_shape,
        "predictor": model.card.predictors[0],
    }


def as_onnx(program: torch.export.ExportedProgram, model: Model) -> bytes:
    import onnx

    converted = torch.onnx.export(
        program,
        input_names=["inputs"],
        output_names=list(OUTPUTS),
        dynamic_shapes=({0: "batch"},),
        dynamo=True,
        verbose=False,
    )
    assert converted is not None
    proto = converted.model_proto
    graph = proto.graph
    for messages in (graph.input, graph.output, graph.node, graph.value_info, graph.initializer):
        for message in messages:
            del message.metadata_props[:]  # how torch got there
    properties = {name: json.dumps(value) for name, value in _properties(model).items()}
    onnx.helper.set_model_props(proto, properties)
    onnx.checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def as_pt2(program: torch.export.ExportedProgram, model: Model) -> bytes:
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"deeplda.json": json.dumps(_properties(model))})
    return content.getvalue()


def onnx_runner(content: bytes) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(OUTPUTS, session.run(list(OUTPUTS), {"inputs": inputs}), strict=True))

    return run


def pt2_runner(content: bytes) -> Runner:
    graph = torch.export.load(io.BytesIO(content)).module()

    def run(inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {name: output.numpy() for name, output in graph(torch.as_tensor(inputs)).items()}

    return run
