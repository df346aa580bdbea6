"""Tables on the terminal."""

from deeplda.cli.terminal import print_scores, print_subclasses
from deeplda.training.metrics import PredictorScores, Scores

NAMES = ["\x1b[31mred", "[b]old"]


def test_names_cannot_control_the_terminal(capsys):
    softmax = PredictorScores(accuracy=0.5, balanced_accuracy=0.5, auc=None)
    scores = Scores(n=2, accuracy=0.5, predictors={"softmax": softmax}, confusion=[[1, 0], [1, 0]])
    print_scores(scores, NAMES, title="t")
    print_subclasses({name: {"decided": 1, "right": 1} for name in NAMES}, augmented=True)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count("\\x1b[31mred") == 3
    assert shown.count("[b]old") == 3
    assert "subclasses, without augmentation" in shown


def test_the_names_of_the_predictors_fit_beside_the_longest_numbers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    perfect = PredictorScores(accuracy=1.0, balanced_accuracy=1.0, auc=1.0, log_loss=0.0109, brier=0.0005, ece=0.0108)
    scores = Scores(n=113, accuracy=1.0, predictors={"nearest_mean": perfect}, confusion=[[56, 0], [0, 57]])
    print_scores(scores, ("a", "b"), title="digits, test set", augmented=("mirrored", scores))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    names = [line.split()[0] for line in lines if "100.00 % (96.7-100.0)" in line]
    assert names == ["nearest_mean", "nearest_mean"]
    assert any(line.split() == ["mirrored"] for line in lines)
