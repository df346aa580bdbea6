"""A small untrained network whose predictors are fitted on digits."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from deeplda.model import Model, ModelCard
from deeplda.networks import build_network
from deeplda.predictors import FeatureStatistics


def small_model(network="convnet-small"):
    torch.manual_seed(0)
    card = ModelCard(
        network=network,
        width=0.25,
        embedding_dim=4,
        sample_shape=(1, 8, 8),
        class_names=tuple("abcdefghij"),
        predictors=("hyperplanes", "nearest_mean", "classic_lda"),
    )
    model = Model(card, build_network("convnet-small", card.sample_shape, 4, width=0.25))
    images, labels = digits()
    model.normalisation.fit(images)
    statistics = FeatureStatistics.for_labels(torch.as_tensor(labels))
    statistics.update(torch.as_tensor(model.transform(images)), torch.as_tensor(labels))
    model._fit_statistics(statistics)
    return model


def digits():
    images, labels = load_digits(return_X_y=True)
    return np.round(images * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)[:300], labels[:300]
