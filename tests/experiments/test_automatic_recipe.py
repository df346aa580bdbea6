"""The settings for images of your own: a function of the data, and epochs that fit a budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deeplda.data import load_data
from deeplda.experiments import automatic_recipe
from deeplda.experiments.automatic_recipe import automatic_settings, epochs_between, fitted_epochs, settings_for
from deeplda.networks import check_network
from deeplda.training.conditions import FEWEST_STEPS, small_batch
from deeplda.training.config import RunConfig

SIDES = st.integers(1, 5_000)
SIZES = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=20).map(np.array)
IMAGES, CLASSES = st.integers(1, 2_000_000), st.integers(2, 500)


@given(SIZES, IMAGES, CLASSES)
def test_a_batch_has_a_few_samples_of_each_class(sizes, images, classes):
    config = RunConfig(**settings_for(sizes, images, classes))
    assert small_batch(config, [1_000] * classes) is None
    assert 0 < config.translate < config.image_size / 4


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [1, 24, 33, 500])
def test_the_network_takes_the_images(side, channels):
    found = settings_for(np.array([[side, 2 * side]]), 100, 3)
    check_network(found["network"], (channels, found["image_size"], found["image_size"]), 3, width=found["width"])


@given(SIZES, IMAGES, CLASSES)
def test_images_are_not_enlarged_beyond_what_the_network_needs(sizes, images, classes):
    side = settings_for(sizes, images, classes)["image_size"]
    assert side <= max(24, np.median(sizes.min(axis=1)))


@given(SIZES, IMAGES, CLASSES, st.randoms())
def test_the_order_of_the_files_does_not_matter(sizes, images, classes, random):
    shuffled = np.array(random.sample(sizes.tolist(), len(sizes)))
    assert settings_for(shuffled, images, classes) == settings_for(sizes, images, classes)


@given(SIZES, IMAGES, IMAGES, CLASSES)
def test_more_images_are_smaller_and_come_in_larger_batches(sizes, one, other, classes):
    few, many = (settings_for(sizes, images, classes) for images in sorted((one, other)))
    assert few["image_size"] >= many["image_size"]
    assert few["batch_size"] <= many["batch_size"]


@pytest.mark.parametrize(
    ("side", "images", "classes", "expected"),
    [
        (200, 280, 4, (48, 0.5, 67, 6, 8)),
        (96, 210, 10, (48, 0.5, 64, 6, 10)),
        (128, 4_400, 2, (48, 0.5, 265, 6, 3)),
        (32, 3_500, 10, (32, 0.5, 237, 4, 3)),
        (32, 42_500, 10, (32, 0.25, 825, 2, 1)),
        (200, 2_000_000, 1_000, (32, 0.25, 5_000, 2, 1)),
        (8, 1_000, 10, (24, 0.5, 126, 3, 3)),
    ],
)
def test_settings_of_some_sets(side, images, classes, expected):
    found = settings_for(np.array([[side, side + 50]]), images, classes)
    names = ("image_size", "width", "batch_size", "translate", "evaluate_every")
    assert tuple(found[name] for name in names) == expected


@given(SIZES, IMAGES, CLASSES)
def test_scoring_takes_a_small_part_of_the_time(sizes, images, classes):
    """A third of a step's time for each of up to 5,000 training and all validation images, 15 for 70 of the others."""
    every = settings_for(sizes, images, classes)["evaluate_every"]
    scored = min(images, 5_000) + round(images * 15 / 70)
    assert scored / 3 <= 0.15 * every * images
    assert every * images >= 2_000


@given(IMAGES, st.integers(2, 5_000))
def test_the_least_number_of_epochs_trains_a_network(images, batch_size):
    least, most = epochs_between(images, batch_size)
    assert 1 <= least <= most
    assert least * -(-images // batch_size) >= FEWEST_STEPS
    assert least * images >= 20_000


@pytest.fixture
def photos(tmp_path):
    """Write 40 images of several sizes in two classes."""
    for number in range(40):
        place = tmp_path / ("cat", "dog")[number % 2]
        place.mkdir(exist_ok=True)
        Image.new("RGB", (30 + number, 80 - number)).save(place / f"{number}.png")
    return str(tmp_path)


def test_given_settings_win(photos):
    chosen = automatic_settings({"data": photos})
    given = {"data": photos, "width": 1.0, "image_size": 40, "flip": False}
    assert automatic_settings(given) == chosen | given
    assert chosen.keys() >= {"image_size", "network", "width", "batch_size", "flip", "translate", "optimizer"}
    assert "epochs" not in chosen


@pytest.mark.parametrize(
    ("given", "not_chosen"),
    [
        ({"network": "dorfernet"}, {"width", "optimizer", "learning_rate", "momentum", "schedule", "statistic"}),
        ({"optimizer": "sgd"}, {"learning_rate", "filter_learning_rate", "momentum", "schedule"}),
        ({"objective": "rdlda"}, {"statistic", "alpha"}),
    ],
)
def test_settings_for_something_else_are_not_chosen(photos, given, not_chosen):
    found = automatic_settings({"data": photos, **given})
    assert found.keys().isdisjoint(not_chosen)
    assert found.keys() >= {"image_size", "batch_size", "translate", *given}
    assert automatic_settings({"data": photos}).keys() >= not_chosen


def test_other_data_has_no_automatic_settings(tmp_path):
    np.savez(tmp_path / "table.npz", x_train=np.ones((20, 3)), y_train=np.arange(20) % 2)
    for data in ({}, {"data": "digits"}, {"data": "cifar10"}, {"data": str(tmp_path / "table.npz")}):
        assert automatic_settings(data) is None


@pytest.fixture
def fit(monkeypatch):
    """Return a function that fits epochs to a budget, given the seconds of a step."""
    data = load_data("digits")

    def fit(step, seconds, spent=0.0, batch_size=100):
        monkeypatch.setattr(automatic_recipe, "seconds_of_step", lambda *_: step)
        return fitted_epochs(RunConfig(batch_size=batch_size), data, seconds, spent)

    return fit


def test_a_slower_machine_or_a_smaller_budget_means_fewer_epochs(fit):
    usual = fit(0.2, 180)
    assert usual.in_budget
    # The rest of the budget is less than an epoch, which is 13 steps and the validation.
    assert 180 - 5 < usual.seconds <= 180
    assert fit(0.3, 180).epochs < usual.epochs < fit(0.18, 180).epochs
    assert fit(0.2, 120).epochs < usual.epochs < fit(0.2, 200).epochs
    assert fit(0.2, 180, spent=60).epochs == fit(0.2, 120).epochs


def test_the_number_of_epochs_is_bounded(fit):
    least, most = epochs_between(1257, 100)
    slow, fast = fit(10.0, 180), fit(1e-6, 1e9)
    assert (slow.epochs, slow.in_budget) == (least, False)
    assert slow.seconds > 180
    assert (fast.epochs, fast.in_budget) == (most, True)
