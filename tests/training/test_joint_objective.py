"""Objective joint, from training to its files: softmax decides, and the three LDA predictors are there as well."""

import numpy as np
import pytest
import torch
from trained_runs import train_run

from deeplda import load
from deeplda.errors import InputError
from deeplda.export import export_run
from deeplda.report.diagnosis import diagnose
from deeplda.report.report_files import write_report
from deeplda.training.batches import Batch
from deeplda.training.config import RunConfig
from deeplda.training.evaluation import evaluate, gather_statistics
from deeplda.training.metrics import EpochRow
from deeplda.training.preparation import check_settings, read_data
from deeplda.training.run_folder import read_metrics, summary_row
from deeplda.training.trainee import build_trainee

PREDICTORS = ("softmax", "hyperplanes", "nearest_mean", "classic_lda")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {"objective": "joint", "statistic": "pillai", "epochs": 6, "batch_size": 100}
    return train_run(tmp_path_factory.mktemp("runs") / "joint", "digits", **settings)


def test_all_four_predictors_are_scored_and_softmax_decides(run):
    scores = summary_row(run).test
    assert tuple(scores.predictors) == PREDICTORS
    assert scores.accuracy == scores.predictors["softmax"].accuracy
    assert min(found.accuracy for found in scores.predictors.values()) > 0.85


def test_softmax_takes_the_outputs_as_scores_and_the_others_fit_the_training_part(run):
    model, data = load(run), read_data(RunConfig())
    assert model.card.predictors == PREDICTORS
    outputs = torch.from_numpy(model.transform(data.test.inputs))
    torch.testing.assert_close(model.class_scores(outputs), outputs.double())
    probabilities = model.predictor.calibration(outputs.double()).numpy()
    np.testing.assert_allclose(model.predict_proba(data.test.inputs), probabilities)
    assert all(int(model._named_predictor(name).calibration.samples) == len(data.val) for name in PREDICTORS)
    means = model.transform(data.train.inputs)[data.train.labels == 3].mean(0)
    np.testing.assert_allclose(model.statistics.means[3], means, rtol=1e-4, atol=1e-5)
    assert evaluate(model, data.test) == summary_row(run).test


def test_distances_are_those_of_the_hyperplanes(run):
    model, images = load(run), read_data(RunConfig()).test.inputs[:20]
    outputs = torch.from_numpy(model.transform(images))
    expected = model.predictors["hyperplanes"].mahalanobis(outputs)
    np.testing.assert_allclose(model.mahalanobis(images), expected)


def test_a_new_class_is_decided_by_the_last_hidden_layer(run):
    model = load(run)
    images = np.zeros((5, 1, 8, 8), np.uint8)
    model.add_class(images, "new")
    assert len(model.class_names) == 11
    assert set(model.predict(images)) == {"new"}


def test_epochs_show_the_eigenvalues_and_the_doctor_reads_them(run):
    rows = read_metrics(run)
    assert all(len(row.eigenvalues) == 9 for row in rows if isinstance(row, EpochRow))
    (finding,) = diagnose(rows, RunConfig.of(run))
    assert "the 9 eigenvalues of the last batch" in finding.why


def test_its_report_and_its_export(run):
    write_report(run)
    page = (run / "report.html").read_text()
    assert "Cross-entropy + 1 x deep LDA, pillai statistic" in page
    assert "The axes are the directions that best separate the classes" in page
    assert page.count("makes the predictions") == 1
    assert export_run(run, format="torch").verification.passed


@pytest.mark.parametrize("lda_weight", [0.0, 2.0])
def test_with_weight_0_it_is_cross_entropy(lda_weight):
    data = read_data(RunConfig())
    inputs, labels = torch.from_numpy(data.train.inputs[:200]), torch.from_numpy(data.train.labels[:200])
    stepped = []
    for settings in ({"objective": "cce"}, {"objective": "joint", "lda_weight": lda_weight}):
        trainee = build_trainee(RunConfig(width=0.1, label_smoothing=0.1, **settings), data)
        loss = trainee.step(Batch(inputs, labels), 0.1)
        stepped.append(
            [loss, *(parameter.detach().flatten().norm().item() for parameter in trainee.trained.parameters())]
        )
    assert (stepped[0] == pytest.approx(stepped[1], rel=1e-6)) == (lda_weight == 0)


def test_subclasses_have_an_output_each(tmp_path):
    run = train_run(tmp_path / "run", "digits", objective="joint", subclasses=2, cluster_on="inputs", epochs=6)
    model, data = load(run), read_data(RunConfig())
    groups = len(model.card.subclass_map)
    assert groups > 10
    assert model.card.embedding_dim == groups == len(model.statistics.counts)
    assert tuple(summary_row(run).test.predictors) == PREDICTORS
    outputs = torch.from_numpy(model.transform(data.test.inputs)).double()
    best = np.asarray(model.card.parents)[outputs.argmax(1)]
    assert (model.class_scores(outputs).argmax(1).numpy() == best).all()
    assert summary_row(run).test.accuracy > 0.8


def test_its_outputs_are_scores_so_their_number_is_given():
    data = read_data(RunConfig())
    check_settings(RunConfig(objective="joint", embedding_dim=10), data)
    with pytest.raises(InputError, match="embedding_dim is 5, but objective joint needs one output per class"):
        check_settings(RunConfig(objective="joint", embedding_dim=5), data)


def test_statistics_are_those_of_the_finished_network(run):
    """They are gathered in eval mode on the whole training part, as for lda."""
    model, data = load(run), read_data(RunConfig())
    expected = gather_statistics(model, data.train)
    torch.testing.assert_close(model.statistics.within(), expected.within())
