"""Figures: each function gives (figure, axes), drawn without pyplot, so that nothing is kept and no window opens."""

from deeplda.report.figures.course import accuracy_against_alpha, eigenvalue_spectrum, learning_curves
from deeplda.report.figures.decisions import confusion_matrix, worst_mistakes
from deeplda.report.figures.embedding import densities, dimension_power, embedding_plane
from deeplda.report.figures.pictures import reconstructions, subclass_sheet
from deeplda.report.figures.saving import save, svg
from deeplda.report.figures.style import ClassStyle, class_styles

__all__ = [
    "ClassStyle",
    "accuracy_against_alpha",
    "class_styles",
    "confusion_matrix",
    "densities",
    "dimension_power",
    "eigenvalue_spectrum",
    "embedding_plane",
    "learning_curves",
    "reconstructions",
    "save",
    "subclass_sheet",
    "svg",
    "worst_mistakes",
]
