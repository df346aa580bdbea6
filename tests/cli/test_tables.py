"""Tables on the terminal."""

from deeplda.cli.tables import print_scores, print_subclasses
from deeplda.training.metrics import PredictorScores, Scores

NAMES = ["\x1b[31mred", "[b]old"]


def test_names_do_not_speak_to_the_terminal(capsys):
    found = {"softmax": PredictorScores(accuracy=0.5, balanced_accuracy=0.5)}
    print_scores(Scores(n=2, accuracy=0.5, predictors=found, confusion=[[1, 0], [1, 0]]), NAMES, title="t")
    print_subclasses({name: {"decided": 1, "right": 1} for name in NAMES}, mirrored=True)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count("\\x1b[31mred") == 3
    assert shown.count("[b]old") == 3
    assert "subclasses, without mirror images" in shown
