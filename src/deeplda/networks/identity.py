"""The network without layers, for features that another network has computed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from deeplda.errors import InputError
from deeplda.networks.layers import Head, checked_head, row_features
from deeplda.networks.whitened_output import Outputs


class IdentityNetwork(nn.Module):
    """A network without layers: the embedding is the normalised feature vector itself, (n, features).

    It has no parameters, so it cannot be trained; `deeplda fit-features` fits only the predictors on it.

    Args:
        sample_shape: (features,), the shape of one sample.
        embedding_dim: the number of features.
        width, head, logit_scale, outputs: not used; they must have their defaults.

    Raises InputError if the samples are not feature vectors, or if another option is given.
    """

    def __init__(
        self,
        sample_shape: Sequence[int],
        embedding_dim: int,
        *,
        width: float = 1.0,
        head: Head | None = None,
        logit_scale: float = 1.0,
        outputs: Outputs | None = None,
    ) -> None:
        super().__init__()
        features = row_features(sample_shape, network="identity")
        checked_head(head, logit_scale, network="identity", choices=("plain",))
        if embedding_dim != features:
            what = f"embedding_dim is {embedding_dim}, but network identity has an output for each feature"
            raise InputError(f"{what}, need {features}")
        given = {"width": f"{width:g}", "logit_scale": f"{logit_scale:g}", "outputs": str(outputs)}
        for name, value in given.items():
            if value not in ("1", "None"):
                raise InputError(f"{name} is {value}, but network identity has no layers: omit {name}")

    def forward(self, rows: Tensor) -> Tensor:
        """Return feature vectors (n, features) unchanged."""
        return rows

    def features(self, rows: Tensor) -> Tensor:
        """Return feature vectors (n, features), which are also the last hidden layer."""
        return rows

    def outputs(self, features: Tensor) -> Tensor:
        """Return the result of `features` unchanged."""
        return features
