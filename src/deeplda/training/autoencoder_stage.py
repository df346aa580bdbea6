"""The first stage of Algorithm 1: train and save an autoencoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import save
from torch import Tensor, nn

from deeplda.data.dataset import Data, Inputs, Part
from deeplda.device import pick_device, seeded
from deeplda.errors import InputError, TrainingError
from deeplda.io import read_small, read_tensors
from deeplda.networks import EncoderDecoder, build_autoencoder, reconstruction_error, training_flops
from deeplda.networks.inspection import first_mismatch, outline, samples_at_once
from deeplda.normalisation import Normalisation
from deeplda.output_folder import OutputFolder
from deeplda.training.batches import Batch
from deeplda.training.config import AutoencoderConfig
from deeplda.training.evaluation import Watch, unwatched
from deeplda.training.metrics import FinalScores, ReconstructionScores, Spectrum


class _AutoencoderCard(BaseModel):
    """The contents of an autoencoder's model.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sample_shape: tuple[int, ...] = Field(min_length=1, max_length=3)
    width: float = Field(gt=0)


class SampleAutoencoder(nn.Module):
    """An autoencoder with its preprocessing: images are scaled to 0..1, feature vectors are standardised."""

    def __init__(self, sample_shape: tuple[int, ...], width: float) -> None:
        super().__init__()
        self.card = _AutoencoderCard(sample_shape=sample_shape, width=width)
        self.autoencoder: EncoderDecoder = build_autoencoder(sample_shape, width=width)
        self.normalisation = Normalisation(sample_shape)

    def fit_normalisation(self, inputs: Inputs) -> None:
        """Fit the standardisation of feature vectors, or the range of float images; uint8 images are divided by 255."""
        if inputs.ndim != 4:
            self.normalisation.fit(inputs)
            return
        low, high = (0.0, 255.0) if inputs.dtype == np.uint8 else (float(np.min(inputs)), float(np.max(inputs)))
        self.normalisation.mean.fill_(low)
        self.normalisation.deviation.fill_((high - low) or 1.0)

    def error(self, inputs: Tensor | Inputs) -> Tensor:
        """Return the paper's reconstruction error of inputs (n, *sample_shape), divided by the size of a sample."""
        wanted = self._prepared(inputs)
        return reconstruction_error(self.autoencoder(wanted), wanted) / wanted[0].numel()

    @torch.no_grad()
    def embed(self, inputs: Inputs, watch: Watch = unwatched) -> NDArray[np.float32]:
        """Return the embedding (n, embedding_dim) of unprocessed inputs, in eval mode."""
        self.eval()
        self._require_shape(inputs)
        size = samples_at_once(self.autoencoder, self.card.sample_shape)
        batches = (inputs[start : start + size] for start in range(0, len(inputs), size))
        embeddings = (self.autoencoder.encode(self._prepared(batch)) for batch in batches)
        parts = watch(embeddings, len(inputs), "embedding with the autoencoder")
        return np.concatenate([part.cpu().numpy() for part in parts])

    @torch.no_grad()
    def reconstruct(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return the reconstruction of unprocessed inputs, on the scale of the data."""
        self.eval()
        self._require_shape(inputs)
        found = self.autoencoder(self._prepared(inputs))
        restored: NDArray[np.float32] = (found * self.normalisation.deviation + self.normalisation.mean).cpu().numpy()
        return restored

    def _write(self, folder: OutputFolder) -> None:
        """Write weights.safetensors and model.json into `folder`."""
        state = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        folder.write("weights.safetensors", save(state))
        folder.write("model.json", self.card.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> SampleAutoencoder:
        """Load an autoencoder written by `_write`. Raises InputError if it is incomplete."""
        try:
            card = _AutoencoderCard.model_validate_json(read_small(folder / "model.json"))
            state = read_tensors(folder / "weights.safetensors")
            # An untrusted card may declare any size, so compare it with the weights before allocating memory.
            declared = outline(lambda: cls(card.sample_shape, card.width))
            if wrong := first_mismatch(declared.state_dict(), state):
                raise InputError(f"weights.safetensors does not fit model.json: {wrong}")
            model = cls(card.sample_shape, card.width)
            model.load_state_dict(state)
        except (OSError, ValidationError, InputError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{folder} is not a complete autoencoder ({reason}): train again") from None
        return model.eval()

    def _require_shape(self, inputs: Inputs) -> None:
        """Raise InputError if the samples do not have the shape of the training data."""
        if inputs.shape[1:] != self.card.sample_shape:
            what = f"the samples have shape {inputs.shape[1:]}, but the autoencoder was trained on"
            raise InputError(f"{what} {self.card.sample_shape}: train again")

    def _prepared(self, inputs: Tensor | Inputs) -> Tensor:
        samples = inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.require(inputs, requirements="W"))
        return self.normalisation.prepare(samples.to(self.normalisation.mean.device))


@dataclass
class Reconstruction:
    """An autoencoder with its optimiser, as a `Trainee` of the loop."""

    trained: SampleAutoencoder
    optimizer: torch.optim.Optimizer
    device: torch.device
    lda_width: None = None
    margins: None = None

    @classmethod
    def build(cls, config: AutoencoderConfig, data: Data) -> Reconstruction:
        """Build everything with new weights drawn from the seed. Raises InputError if the samples are unsupported."""
        device = pick_device(config.device)
        with seeded(config.seed, device):
            model = SampleAutoencoder(data.sample_shape, config.width)
        model.fit_normalisation(data.train.inputs)
        model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs
        parameters, rate, decay = model.autoencoder.parameters(), config.learning_rate, config.weight_decay
        optimizer = (
            torch.optim.Adam(parameters, rate, weight_decay=decay)
            if config.optimizer == "adam"
            else torch.optim.SGD(parameters, rate, config.momentum, weight_decay=decay, nesterov=True)
        )
        return cls(model, optimizer, device)

    def step(self, batch: Batch, learning_rate: float) -> float:
        """Take one optimiser step and return the reconstruction error before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        error = self.trained.error(batch.inputs)
        if not torch.isfinite(error):
            raise TrainingError(
                "the autoencoder's reconstruction error is not finite: lower --autoencoder-learning-rate"
            )
        self.optimizer.zero_grad()
        error.backward()  # type: ignore[no-untyped-call]  # not typed in torch
        self.optimizer.step()
        return float(error.detach())

    def regroup(self, data: Data, epoch: int) -> bool:  # noqa: ARG002  # `Trainee` interface
        """Return False: the labels stay as they are."""
        return False

    def grouped(self, data: Data) -> Data:
        """Return the data unchanged."""
        return data

    def examine(self, fit_part: Part, validation: Part) -> tuple[ReconstructionScores | None, Spectrum]:  # noqa: ARG002  # `Trainee` interface
        """Return the reconstruction error on `validation` and an empty spectrum."""
        return self._error(validation), {}

    @torch.no_grad()
    def _error(self, validation: Part) -> ReconstructionScores | None:
        if len(validation) == 0:
            return None
        self.trained.eval()
        total, size = 0.0, samples_at_once(self.trained.autoencoder, self.trained.card.sample_shape)
        for start in range(0, len(validation), size):
            inputs = validation.inputs[start : start + size]
            total += float(self.trained.error(inputs)) * len(inputs)
        return ReconstructionScores(n=len(validation), error=total / len(validation))

    def finish(self, data: Data, watch: Watch) -> SampleAutoencoder:  # noqa: ARG002  # `Trainee` interface
        """Return the autoencoder."""
        return self.trained.eval()

    def score(self, data: Data, watch: Watch) -> FinalScores:  # noqa: ARG002  # `Trainee` interface
        """Return the reconstruction errors on the validation and test sets."""
        return FinalScores(validation=self._error(data.val), test=self._error(data.test))

    def flops(self, sample_shape: tuple[int, ...]) -> int:
        """Return the number of floating-point operations in the forward and backward pass of one sample."""
        return training_flops(self.trained.autoencoder, sample_shape)

    def describe_step(self) -> str:
        return ""
