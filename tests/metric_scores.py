"""Scores with a given accuracy, as a row of metrics.jsonl has them: all numbers agree with each other."""

_CLASS_SIZE = 10**7


def scores_with(accuracy, **others):
    """Return the scores of hyperplanes on two classes, or of the predictors whose accuracies `others` lists by name."""
    right = round(accuracy * _CLASS_SIZE)
    found = {name: {"accuracy": share, "balanced_accuracy": share} for name, share in others.items()}
    return {
        "n": 2 * _CLASS_SIZE,
        "accuracy": accuracy,
        "predictors": found or {"hyperplanes": {"accuracy": accuracy, "balanced_accuracy": accuracy}},
        "confusion": [[right, _CLASS_SIZE - right], [_CLASS_SIZE - right, right]],
    }
