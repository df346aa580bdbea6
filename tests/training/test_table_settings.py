import pytest

from deeplda.training.config import RunConfig
from deeplda.training.table_settings import layer_settings, weight_decay, with_table_settings


def test_more_samples_decay_less_in_a_step_and_the_same_in_all():
    assert weight_decay(10) == weight_decay(1_000) == 0.01
    assert weight_decay(20_000) * 20_000 == pytest.approx(weight_decay(3_000) * 3_000)


@pytest.mark.parametrize(
    ("samples", "epochs", "every"), [(100, 100, 20), (40_000, 100, 1), (400_000, 10, 1), (5_000_000, 5, 1)]
)
def test_epochs(samples, epochs, every):
    config = with_table_settings(RunConfig(data="t.csv"), samples, ())
    assert (config.epochs, config.evaluate_every) == (epochs, every)
    assert config.hidden_layer_sizes == layer_settings(samples)["hidden_layer_sizes"]


def test_given_settings_win():
    config = RunConfig(data="t.csv", weight_decay=0.5, dropout=0.3)
    found = with_table_settings(config, 10_000, {"data", "weight_decay", "dropout"})
    assert (found.weight_decay, found.dropout, found.hidden_layer_sizes) == (0.5, 0.3, "256,256")


@pytest.mark.parametrize("network", ["identity", "mine:network"])
def test_other_networks_have_their_own_layers(network):
    found = with_table_settings(RunConfig(data="t.csv", network=network), 100, {"data", "network"})
    assert (found.hidden_layer_sizes, found.dropout) == (None, None)
    assert found.learning_rate == 0.1
