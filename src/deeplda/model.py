"""A trained model: network, normalisation, predictors and class names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from safetensors.torch import save
from torch import Tensor, nn

from deeplda.audit import Audit, audit_samples, class_indices
from deeplda.core.options import check_choice
from deeplda.data.mapped_rows import MappedRows
from deeplda.errors import InputError, NotFiniteError
from deeplda.io import expanded
from deeplda.model_card import Layer, ModelCard, UnknownSetting, first_problem
from deeplda.model_inputs import ModelInputs, checked_rows, encoded, row_batches
from deeplda.model_predictors import build_predictors, predictor_name, priors_of
from deeplda.networks import NETWORKS
from deeplda.networks.hidden_layer import MOST_FEATURES, outputs_and_features
from deeplda.networks.inspection import output_width, samples_at_once, zero_sample
from deeplda.new_samples import SamplesToAdd
from deeplda.normalisation import Normalisation
from deeplda.output_folder import OutputFolder
from deeplda.predictors import FeatureStatistics, Hyperplanes, LinearPredictor, Softmax, discriminant_directions
from deeplda.predictors.balanced_ridge import BalancedRidge
from deeplda.predictors.nearest_rows import NearestRows, Neighbours
from deeplda.predictors.unknown_scores import NONE_OF_THESE, UnknownRule
from deeplda.rejection import Rejection, StoredStatistics
from deeplda.views import Views, averaged, no_views

__all__ = ["Model", "ModelCard", "Neighbours"]

# The files of a model folder, including its exports.
MODEL_FILES = frozenset({"model.json", "weights.safetensors", "model.onnx", "model.pt2"})
# Prefixes of the statistics' names in weights.safetensors: those of the embedding and of the last hidden layer.
STATISTICS, FEATURE_STATISTICS = "statistics.", "feature_statistics."
# The names of the quantiles of the unknown score and of the stored features in weights.safetensors.
QUANTILES, NEIGHBOURS = "unknown.quantiles", "unknown.neighbours"

# The number of samples processed at once by the user's own networks, whose activations we do not know.
_BATCH = 500


class Model(nn.Module):
    """A network together with everything it needs to classify raw samples.

    Inputs are arrays or tensors in the form of the training data: images N x C x H x W, as uint8 or as floats in the
    same range 0..255, or feature vectors N x features, which can also be a sparse matrix of SciPy. If the model was
    trained on a table, they can also be data frames with the columns of that table. With `tta="mirror"`, the embeddings
    of each image and its mirror image are averaged, at twice the cost; with `tta="views"`, those of six views, of which
    four are shifted by a pixel. `mirror=True` is the same as `tta="mirror"`.

    Create a model with `from_parts` after your own training loop, or read one with `deeplda.load`.

    Attributes:
        card: the settings of the model, saved as model.json.
        network: the module that maps normalised samples to embeddings.
    """

    def __init__(self, card: ModelCard, network: nn.Module) -> None:
        super().__init__()
        self.card, self.network, self.normalisation = card, network, Normalisation(card.sample_shape)
        self.predictors = build_predictors(card)
        # The rule on the last hidden layer, which decides once a class is added.
        spare = card.features_dim is not None and card.layer == "outputs"
        self.features_rule = BalancedRidge() if spare else None
        self.rejection = Rejection()

    @classmethod
    def from_parts(
        cls,
        network: nn.Module,
        predictor: LinearPredictor,
        class_names: Sequence[str],
        sample_shape: Sequence[int],
        *,
        mean: ArrayLike | Tensor | None = None,
        deviation: ArrayLike | Tensor | None = None,
    ) -> Model:
        """Create a model from a network that you trained in your own loop.

        The model works like one trained by deeplda. Code is never saved, so pass the network again when you load the
        model, as in ``deeplda.load(folder, network=network)``.

        Args:
            network: maps samples (n, *sample_shape) to embeddings (n, d). The model uses this module, not a copy.
            predictor: a fitted `Hyperplanes`, `NearestMean` or `ClassicLDA`, or a `Softmax`. The model gets a copy.
            class_names: a name for each class, in ascending order of the labels that the predictor was fitted on.
            sample_shape: shape of one sample, such as (features,) or (channels, height, width).
            mean, deviation: the network receives (x - mean) / deviation. Each is one number, or one number for each
                channel or feature. By default, inputs are not changed.

        Raises InputError if the parts do not fit together, or if the predictor has an option that a saved model cannot
        record: `normalize="unit"` or `probability="sigmoid"`. The predictor's calibration is kept. Priors other than
        the predictor's default apply until a class is added.
        """
        card = _card_of_parts(network, predictor, class_names, tuple(int(size) for size in sample_shape))
        model = cls(card, network)
        model.normalisation.set(mean, deviation)
        # In a model, classes are numbered by their position in class_names.
        classes = torch.arange(len(card.class_names))
        model.predictor.load_state_dict(predictor.state_dict() | {"classes": classes})
        if (statistics := predictor._statistics) is not None:
            model.predictor._statistics = FeatureStatistics.from_state(
                statistics.state() | {"classes": classes}, scatter=card.scatter, class_weight=card.class_weight
            )
        like = zero_sample(network, (0,))
        model.normalisation.to(dtype=like.dtype if like.dtype == torch.float64 else torch.float32)
        return model.to(like.device)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names, in the order of the columns of `predict_proba`."""
        return self.card.class_names

    @property
    def predictor(self) -> LinearPredictor:
        """The predictor that makes the decisions."""
        return self._named_predictor()

    @property
    def statistics(self) -> FeatureStatistics | None:
        """Statistics of the embedded training set; None for a model trained with cross-entropy alone."""
        return self.predictor._statistics

    @property
    def feature_statistics(self) -> FeatureStatistics | None:
        """Statistics of the last hidden layer on the training set; None if the model has none."""
        if self.card.layer == "features":
            return self.statistics
        return None if self.features_rule is None else self.features_rule._statistics

    @property
    def calibrated_on(self) -> int:
        """The number of samples outside the training set that the probabilities were calibrated on; 0 if none."""
        return int(self.predictor.calibration.samples)

    @cached_property
    def batch_size(self) -> int:
        """The number of samples that are processed at once, at most 500; it depends only on the network and card."""
        ours = type(self.network) in NETWORKS.values()
        return samples_at_once(self.network, self.card.sample_shape) if ours else _BATCH

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the embeddings (n, d) of inputs (n, *sample_shape), as `transform` does."""
        if self.card.layer == "features":
            return self._features(inputs)
        embedding: Tensor = self.network(self.normalisation.prepare(inputs))
        return embedding

    def transform(self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False) -> NDArray[np.float32]:
        """Return the embeddings of inputs (n, *sample_shape).

        They are the network's outputs, (n, embedding_dim). Once `add_class` or `add_samples` has decided by the last
        hidden layer, they are that layer, as in `features`.
        """
        return self._collect(lambda embedding: embedding, inputs, tta=tta, mirror=mirror)

    def features(self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False) -> NDArray[np.float32]:
        """Return the last hidden layer, (n, d), of inputs (n, *sample_shape).

        It is the result of the network's method `features` or, without one, the input of the linear layer that runs
        last. Raises InputError if the network has neither.
        """
        found = list(self._batches(self._features, inputs, tta=tta, mirror=mirror))
        if not found:
            found = [self._features(zero_sample(self.network, self.card.sample_shape))[:0].detach()]
        return torch.cat(found).cpu().numpy()

    def predict(
        self, inputs: ModelInputs, *, reject: float | None = None, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.str_]:
        """Return the class name of each sample, (n,).

        With `reject=0.95`, a sample whose `unknown_score` exceeds that of 95 % of the known validation samples gets the
        answer "none of these" instead. This computes the embeddings twice.
        """
        best = self.decision_function(inputs, tta=tta, mirror=mirror).argmax(1)
        names: NDArray[np.str_] = np.asarray(self.class_names)[best]
        if reject is None:
            return names
        beyond = self.unknown_score(inputs, tta=tta, mirror=mirror) > self.unknown_threshold(reject)
        return np.where(beyond, NONE_OF_THESE, names)

    def predict_proba(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.float64]:
        """Return the probability of each class, (n, C), in the order of `class_names`.

        The probabilities are calibrated if `calibrated_on` is positive; otherwise, they are far too confident.
        """
        return self._collect(self.class_probabilities, inputs, tta=tta, mirror=mirror)

    def decision_function(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.float64]:
        """Return the score of each class, (n, C), which no calibration has changed, in the order of `class_names`."""
        return self._collect(self.class_scores, inputs, tta=tta, mirror=mirror)

    def predict_subclasses(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.str_]:
        """Return the subclass of each sample, (n,): "cat/1" is the second of "cat"; an unsplit class is just "cat"."""
        scores = self._collect(self.predictor._scores, inputs, tta=tta, mirror=mirror)
        names: NDArray[np.str_] = np.asarray(self.card.subclass_map.names(self.class_names))[scores.argmax(1)]
        return names

    def mahalanobis(
        self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False
    ) -> NDArray[np.float64]:
        """Return the distance from each sample to the nearest class, (n,); it is large if a sample belongs to no class.

        Raises InputError if the model has no statistics.
        """
        self._require_statistics()
        return self._collect(self.predictor.mahalanobis, inputs, tta=tta, mirror=mirror)

    def unknown_score(
        self,
        inputs: ModelInputs,
        *,
        rule: UnknownRule | None = None,
        layer: Layer | None = None,
        tta: Views | None = None,
        mirror: bool = False,
    ) -> NDArray[np.float64]:
        """Return a score for each sample, (n,), which is the larger, the less the sample is like the training set.

        Args:
            rule: "neighbours" is described in `NeighbourScore`, "relative" and "mahalanobis" in `UnknownScore`, and
                "probability" is 1 minus the highest probability. The default is the rule whose thresholds are stored
                with the model: "neighbours" or, without statistics of the last hidden layer, "relative" or, without
                any, "probability".
            layer: "features", the last hidden layer, or "outputs"; by default "features" if the model has statistics of
                it. "neighbours" works only on features, and "probability" on neither.

        Raises InputError if the model does not have the statistics that the rule needs.
        """
        setting = self._unknown_setting(rule, layer)
        if setting.rule == "probability":
            return self._collect(
                lambda embedding: 1 - self.class_probabilities(embedding).amax(1), inputs, tta=tta, mirror=mirror
            )
        compute = self if setting.layer == self.card.layer else self._features
        parts = self._batches(compute, inputs, tta=tta, mirror=mirror)
        found = [_finite(self._distance_score(setting)(part)).cpu().numpy() for part in parts]
        return np.concatenate(found or [np.empty(0)])

    def unknown_threshold(self, reject: float) -> float:
        """Return the `unknown_score` that a share `reject` of known samples does not exceed, such as 0.95 of them.

        Raises InputError if `reject` is not between 0 and 1, or if the model has no quantiles of known scores.
        """
        found = self.rejection.threshold(reject)
        if NONE_OF_THESE in self.class_names:
            raise InputError(f"a class is called {NONE_OF_THESE!r}, like the answer to unknown inputs: rename it")
        return found

    def fit_rejection(self, inputs: ModelInputs) -> None:
        """Set the thresholds for rejecting unknown inputs from known samples outside the training set.

        Training does this with the validation set. Raises InputError if there are no samples.
        """
        if len(inputs) == 0:
            raise InputError("inputs has no samples, need known samples outside the training set")
        setting = self._default_unknown
        self._set_unknown(self.unknown_score(inputs, rule=setting.rule, layer=setting.layer))

    def coordinates(self, inputs: ModelInputs, *, tta: Views | None = None) -> NDArray[np.float64]:
        """Return the discriminant coordinates of each sample, (n, m) with m = min(embedding_dim, C - 1).

        The within-class scatter of the training set is the identity in these coordinates, so a distance of 1 is one
        standard deviation within a class, in every direction. Raises InputError if the model has no statistics.
        """
        return self._collect(self.discriminant_map(), inputs, tta=tta)

    def similar(
        self, queries: ModelInputs, gallery: ModelInputs, count: int = 10, *, tta: Views | None = None
    ) -> Neighbours:
        """Return the `count` samples of a gallery that are nearest to each query in discriminant coordinates.

        The search is exact, and the coordinates of the gallery are never in memory all at once. The result has indices
        into the gallery and distances, both (n, count), nearest first; of a gallery with fewer samples, all of them. A
        query that is also in the gallery is its own nearest sample, at distance 0. Raises InputError if the model has
        no statistics.
        """
        search, to_coordinates = NearestRows(self.coordinates(queries, tta=tta), count), self.discriminant_map()
        for embedding in self.embeddings(gallery, tta=tta):
            search.add(to_coordinates(embedding).numpy())
        indices, distances = search.found()
        return Neighbours(indices[:, : len(gallery)], distances[:, : len(gallery)])

    def discriminant_map(self) -> Callable[[Tensor], Tensor]:
        """Return the function from embeddings (n, embedding_dim) to `coordinates`, (n, m) float64 on the CPU.

        Raises InputError if the model has no statistics.
        """
        statistics = self._require_statistics()
        directions = discriminant_directions(statistics, self.card.alpha, self.card.lam)
        # Centred first, so that an offset of the embedding costs no precision.
        centre = statistics.means.mean(0)
        return lambda embedding: (embedding.cpu().double() - centre) @ directions.T

    def audit(self, inputs: ModelInputs, labels: ArrayLike, *, margins: ArrayLike | None = None) -> Audit:
        """Find samples whose labels are likely to be wrong, near-duplicates with different labels, and outliers.

        Args:
            labels: (n,), the class name of each sample.
            margins: (n,), how well the labels fitted during training, NaN if unknown: `margins.safetensors` of a run
                has them for its training set. Without them, the scores of the model decide, which fit the labels of its
                own training samples too well if it has memorised them.

        Raises InputError if a label is not a class of the model, or if the numbers of samples differ.
        """
        inputs = encoded(inputs, self.card)
        samples = inputs if isinstance(inputs, MappedRows) else np.asarray(inputs)
        given = class_indices(np.asarray(labels), self.class_names)
        if len(given) != len(samples):
            raise InputError(
                f"there are {len(samples)} samples and {len(given)} labels, need one label for each sample"
            )
        if (given < 0).any():
            wrong = np.asarray(labels)[given < 0][0]
            raise InputError(f"labels contains {str(wrong)!r}, need one of the classes of the model")
        embedding = torch.from_numpy(self.transform(inputs))
        distances = None if self.statistics is None else self._on_device(self.predictor.mahalanobis, embedding)
        scores = self._on_device(self.class_scores, embedding)
        known = None if margins is None else np.asarray(margins, dtype=np.float64)
        found = audit_samples(samples, embedding.numpy(), scores, given, distances, known)
        return found._named(np.asarray(self.class_names))

    def add_class(self, inputs: ModelInputs, name: str) -> None:
        """Add a class from a few examples (n, *sample_shape), without retraining the network.

        If the model has statistics of its last hidden layer, this is `add_samples` with a new name. Otherwise, the
        predictors are fitted again on the outputs; their calibration is kept, and so are the class weights of an
        estimator. The new class has the prior of an average class, except with classic LDA on the outputs, whose priors
        are the class frequencies.

        Raises InputError if a class with that name already exists, the model has no statistics, or it has a softmax
        predictor, whose layer is trained, and no statistics of the last hidden layer.
        """
        if not isinstance(name, str) or not name:
            raise InputError(f"the class name is {name!r}, need a non-empty string: pass {str(name) or 'new'!r}")
        if name in self.class_names:
            raise InputError(f"class {name!r} already exists: choose another name, or call add_samples")
        if self.feature_statistics is not None:
            self.add_samples(inputs, [name] * len(inputs))
            return
        statistics = self._require_statistics()
        if "softmax" in self.card.predictors:
            what = "a class cannot be added to a model with softmax, whose layer is trained for its classes"
            raise InputError(f"{what}: train with objective lda")
        statistics = statistics.with_class(torch.as_tensor(self.transform(inputs)), len(self.card.subclass_map))
        self._append_classes([name])
        for kind in self.card.predictors:
            predictor = self._named_predictor(kind)
            predictor.priors = priors_of(predictor, self.card, statistics)
            predictor._refit(statistics)

    def add_samples(self, inputs: ModelInputs, names: Sequence[str] | NDArray[np.str_]) -> None:
        """Add samples (n, *sample_shape) of known or new classes, given the class name of each, without retraining.

        The statistics of the last hidden layer are updated, and the predictor `BalancedRidge` on that layer, which
        replaces all others, is solved again from them. The order in which samples are added makes no difference, except
        for the order of new classes in `class_names`, and that the rule "neighbours" of `unknown_score` knows only
        2,000 of the added samples, the first ones. The calibration is that of `BalancedRidge` for the classes of the
        training.

        Raises InputError if the model has no statistics of the last hidden layer, or if samples of a class with
        subclasses are given.
        """
        if (statistics := self.feature_statistics) is None:
            what = "the model has no statistics of its last hidden layer, which adding samples needs"
            raise InputError(f"{what}: train again with this version and objective lda")
        update = SamplesToAdd.of(names, len(inputs), self.class_names, self.card.parents)
        features = torch.as_tensor(self.features(inputs))
        statistics = update.added_to(statistics, features)
        self._append_classes(update.new)
        self.rejection.add(features)
        if self.card.layer == "outputs":
            rule = self.features_rule
            assert rule is not None
            self.predictors, self.features_rule = nn.ModuleDict({"balanced_ridge": rule}), None
            changes = {"layer": "features", "predictors": ("balanced_ridge",)}
            self.card = self.card.model_copy(update=changes | {"scatter": "pooled", "class_weight": None})
        self.predictor.priors = priors_of(self.predictor, self.card, statistics)
        self.predictor._refit(statistics)

    def class_probabilities(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Return the calibrated probability of each class, (n, C) float64, for embeddings (n, embedding_dim).

        `predictor` names the predictor to use, by default the one that decides. Raises InputError if a score is
        not finite.
        """
        probabilities: Tensor = self._named_predictor(predictor).calibration(self.class_scores(embedding, predictor))
        return probabilities

    def class_scores(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Return the score of each class, (n, C) float64, for embeddings (n, embedding_dim).

        `predictor` names the predictor to use, by default the one that decides. With subclasses, the score of a
        class is its best subclass's score, as in the paper, or log(sum(exp(score))) over its subclasses, whose softmax
        adds up their probabilities; `card.subclass_decision` determines which.

        Raises InputError if a score is not finite.
        """
        return _finite(self._unchecked_scores(embedding, predictor))

    def _unchecked_scores(self, embedding: Tensor, predictor: str | None = None) -> Tensor:
        """Return the class scores, without a check, which cannot be part of an exported graph."""
        return self._combined_scores(self._named_predictor(predictor)._scores(embedding))

    def _combined_scores(self, scores: Tensor) -> Tensor:
        """Return the score of each class, (n, C), given the score of each subclass, as `class_scores` describes."""
        if self.card.parents is None:
            return scores
        if self.card.subclass_decision == "sum":
            return self.card.subclass_map.class_log_sums(scores)
        return self.card.subclass_map.class_scores(scores)

    def embeddings(self, inputs: ModelInputs, *, tta: Views | None = None, mirror: bool = False) -> Iterator[Tensor]:
        """Yield the embeddings in batches, computed in eval mode on the model's device.

        Raises InputError if the inputs have the wrong shape, contain NaN or infinity, or are images scaled to 0..1
        although the training images were not, or if an embedding is not finite.
        """
        return self._batches(self, inputs, tta=tta, mirror=mirror)

    @torch.no_grad()
    def _batches(
        self,
        compute: Callable[[Tensor], Tensor],
        inputs: ModelInputs,
        *,
        tta: Views | None = None,
        mirror: bool = False,
    ) -> Iterator[Tensor]:
        """Yield what `compute` returns for batches of inputs (n, *sample_shape), as described in `embeddings`."""
        rows = checked_rows(inputs, self.card)
        tta = tta or ("mirror" if mirror else None)
        if tta is not None:
            check_choice("tta", tta, get_args(Views), or_else="None")
            if len(self.card.sample_shape) != 3:
                raise InputError(no_views(self.card.sample_shape))
        self.eval()
        for batch in row_batches(rows, self.batch_size, self.normalisation.mean):
            yield _finite(averaged(compute, batch, tta))

    def save(self, path: str | Path) -> None:
        """Write a new model folder atomically, for `deeplda.load`. Raises InputError if the path exists."""
        path = expanded(path).absolute()
        with OutputFolder.open(path.parent) as parent, parent.new_folder(path.name, ours=None) as folder:
            self._write(folder)

    def _collect(
        self,
        function: Callable[[Tensor], Tensor],
        inputs: ModelInputs,
        *,
        tta: Views | None = None,
        mirror: bool = False,
    ) -> NDArray[Any]:
        """Apply `function` to the embeddings and return the results as one array, even if there are no inputs."""
        parts = self.embeddings(inputs, tta=tta, mirror=mirror)
        found = [_finite(function(part)).cpu().numpy() for part in parts]
        nothing = self.normalisation.mean.new_empty((0, self.card.layer_width))
        return np.concatenate(found or [function(nothing).cpu().numpy()])

    def _features(self, inputs: Tensor) -> Tensor:
        """Return the last hidden layer (n, d) of inputs. Raises InputError if the network has none."""
        hidden = outputs_and_features(self.network, self.normalisation.prepare(inputs))[1]
        if hidden is None:
            what = "the network has no last hidden layer: it has no method features, and no linear layer with vectors"
            raise InputError(f"{what}: give it a method features(inputs) that returns (n, d), or use layer outputs")
        return hidden

    def _with_features(self, inputs: Tensor) -> Tensor:
        """Return the outputs and, in further columns, the last hidden layer, unless it is missing or too wide."""
        outputs, hidden = outputs_and_features(self.network, self.normalisation.prepare(inputs))
        return outputs if hidden is None or hidden.shape[1] > MOST_FEATURES else torch.cat([outputs, hidden], 1)

    @property
    def _layers(self) -> StoredStatistics:
        return StoredStatistics(self.card.layer, self.statistics, self.feature_statistics)

    def _require_statistics(self) -> FeatureStatistics:
        """Return the statistics of the embedded training set. Raises InputError if there are none."""
        return self._layers.require()

    def _unknown_setting(self, rule: UnknownRule | None, layer: Layer | None) -> UnknownSetting:
        """Return the rule and layer of the unknown score. Raises InputError if the model lacks what they need."""
        return self.rejection.setting(self.card.unknown, self._layers, rule, layer)

    @property
    def _default_unknown(self) -> UnknownSetting:
        """The rule and layer that recognise unknown inputs best, given what the model has stored."""
        return self.rejection.default(self._layers)

    def _distance_score(self, setting: UnknownSetting) -> nn.Module:
        """Return the module that scores a layer, on the device of the model."""
        return self.rejection.score(setting, self._layers).to(self.normalisation.mean.device)

    def _set_unknown(self, scores: NDArray[np.float64]) -> None:
        """Store the quantiles of the default unknown score, given that score of known samples (n,)."""
        self.rejection.fit(scores)
        self.card = self.card.model_copy(update={"unknown": self._default_unknown})

    def _set_feature_statistics(self, statistics: FeatureStatistics, some: Tensor) -> None:
        """Keep the statistics of the last hidden layer and the features of some samples, and fit the rule on them."""
        self.rejection.store(some)
        rule = BalancedRidge().to(self.normalisation.mean.device)
        rule.priors = priors_of(rule, self.card, statistics)
        self.features_rule = rule.fit_statistics(statistics)
        self.card = self.card.model_copy(update={"features_dim": statistics.means.shape[1]})

    def _append_classes(self, names: Sequence[str]) -> None:
        """Add classes to the card; each has one subclass if there are subclasses."""
        known, parents = len(self.class_names), self.card.parents
        more = tuple(range(known, known + len(names)))
        update = {"class_names": (*self.class_names, *names), "parents": parents and (*parents, *more)}
        self.card = self.card.model_copy(update=update)

    def _on_device(self, function: Callable[[Tensor], Tensor], embedding: Tensor) -> NDArray[Any]:
        """Apply `function` to embeddings in memory, which are moved to the device of the model."""
        return function(embedding.to(self.normalisation.mean.device)).cpu().numpy()

    def _named_predictor(self, name: str | None = None) -> LinearPredictor:
        """Return a predictor, by default the one that makes the decisions."""
        predictor = self.predictors[name or self.card.deciding]
        assert isinstance(predictor, LinearPredictor)
        return predictor

    def _fit_statistics(self, statistics: FeatureStatistics) -> None:
        """Fit every predictor except softmax from the statistics of the embedded training set, and store these."""
        for name in self.card.predictors:
            predictor = self._named_predictor(name)
            if isinstance(predictor, Softmax):
                predictor._statistics = statistics
            else:
                predictor.priors = priors_of(predictor, self.card, statistics)
                predictor.fit_statistics(statistics)

    def _place(self, device: torch.device) -> Model:
        """Move the model to a device, with filters in channels_last memory, which makes convolutions faster."""
        self.to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs
        return self

    def _write(self, folder: OutputFolder) -> None:
        """Write weights.safetensors and model.json into `folder`."""
        state = self.state_dict()
        if self.statistics is not None:
            state |= {f"{STATISTICS}{name}": tensor for name, tensor in self.statistics.state().items()}
        if self.card.layer == "outputs" and (found := self.feature_statistics) is not None:
            state |= {f"{FEATURE_STATISTICS}{name}": tensor for name, tensor in found.state().items()}
        stored = {QUANTILES: self.rejection.quantiles, NEIGHBOURS: self.rejection.neighbours}
        state |= {name: tensor for name, tensor in stored.items() if tensor is not None}
        # Copies, because safetensors rejects tensors that share memory, such as the weights of tied layers.
        copies = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
        folder.write("weights.safetensors", save(copies))
        folder.write("model.json", self.card.model_dump_json(indent=2) + "\n")


def uncalibrated_note(model: Model) -> str | None:
    """Return a sentence for the user if the probabilities of a model are not calibrated."""
    if model.calibrated_on:
        return None
    return "the probabilities are far too confident, because no samples outside the training set calibrated them"


def _card_of_parts(
    network: nn.Module, predictor: LinearPredictor, class_names: Sequence[str], sample_shape: tuple[int, ...]
) -> ModelCard:
    """Return the card of `Model.from_parts`. Raises InputError if the parts do not fit together."""
    name = predictor_name(predictor)
    count, width = predictor.weight.shape
    if len(class_names) != count:
        raise InputError(f"there are {len(class_names)} class names, need {count}, one for each class")
    if (outputs := output_width(network, sample_shape)) != width:
        what = f"the network has {outputs} outputs, but the predictor was fitted on {width}"
        raise InputError(f"{what}: fit the predictor on the output of this network")
    options = predictor if isinstance(predictor, Hyperplanes) else predictor._statistics
    try:
        return ModelCard(
            network=f"{type(network).__module__}:{type(network).__qualname__}",
            width=1.0,
            embedding_dim=width,
            sample_shape=sample_shape,
            class_names=tuple(map(str, class_names)),
            predictors=(name,),
            alpha=getattr(options, "alpha", 1.0),
            lam=getattr(options, "lam", 1e-3),
            scatter="pooled" if options is None else options.scatter,
            class_weight=None if options is None else options.class_weight,
        )
    except ValidationError as error:
        raise InputError(f"these parts do not make a model: {first_problem(error)}") from None


def _finite(values: Tensor) -> Tensor:
    """Return the values unchanged. Raises InputError if one of them is NaN or infinite."""
    if not values.isfinite().all():
        raise NotFiniteError
    return values
