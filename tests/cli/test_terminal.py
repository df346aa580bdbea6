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
