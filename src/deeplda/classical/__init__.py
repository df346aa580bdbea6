"""Discriminant analysis without a network, as scikit-learn estimators: streaming, kernel and two-dimensional LDA."""

from typing import TYPE_CHECKING

from deeplda._lazy import lazy_names

if TYPE_CHECKING:
    from deeplda.classical.kernel_lda import KernelLDA
    from deeplda.classical.streaming_lda import StreamingLDA
    from deeplda.classical.two_dimensional_lda import TwoDimensionalLDA

__all__ = ["KernelLDA", "StreamingLDA", "TwoDimensionalLDA"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "KernelLDA": "deeplda.classical.kernel_lda",
        "StreamingLDA": "deeplda.classical.streaming_lda",
        "TwoDimensionalLDA": "deeplda.classical.two_dimensional_lda",
    },
)
