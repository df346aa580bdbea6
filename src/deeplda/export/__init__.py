"""A trained model as one graph, for programs without deeplda: ONNX, or an exported program of PyTorch.

The graph is normalisation, network and deciding predictor. It takes samples as `load().predict` does, any number of
them: uint8 images N x C x H x W, or rows N x features in float32 (float64 where the model computes in float64; images
of a saved estimator in float32, in the range it was fitted on). It gives `scores` and `probabilities` of the classes,
float64 as in `predict_proba`, and the `embedding`.

An ONNX file is data. A .pt2 is not only that: `torch.export.load` unpickles parts of it, so it can run code, and is
to be loaded from a source that you trust alone. Here it is read back once, from memory, to verify it.
"""

from deeplda.export.exporting import Exported, Format, export_model, export_run
from deeplda.export.verification import OUTPUTS, Verification, VerificationError, verify

__all__ = [
    "OUTPUTS",
    "Exported",
    "Format",
    "Verification",
    "VerificationError",
    "export_model",
    "export_run",
    "verify",
]
