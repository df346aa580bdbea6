"""What holds for all tests."""

import os

# scikit-learn checks array API input only where SciPy is told to support it, before it is imported.
os.environ["SCIPY_ARRAY_API"] = "1"
