"""scikit-learn's LDA, with the same covariance in all of its versions."""

import numpy as np
import sklearn
from packaging.version import Version
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis


def svd_lda(X, y, **options):
    """Fit LDA with solver="svd" and the covariance W / n. scikit-learn before 1.9 divides by n - C, which is undone."""
    lda = LinearDiscriminantAnalysis(solver="svd", **options).fit(X, y)
    if Version(sklearn.__version__) < Version("1.9"):
        ratio = len(y) / (len(y) - len(lda.classes_))
        log_priors = np.log(lda.priors_)
        free_of_covariance = np.diff(log_priors) if len(lda.classes_) == 2 else log_priors
        lda.coef_ *= ratio
        lda.scalings_ *= np.sqrt(ratio)
        lda.intercept_ = free_of_covariance + ratio * (lda.intercept_ - free_of_covariance)
    return lda
