"""What holds for all tests."""

import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# The first example of a test may import torch, which takes longer than any deadline.
settings.register_profile("deeplda", deadline=None)
settings.load_profile("deeplda")

# scikit-learn checks array API input only where SciPy is told to support it, before it is imported.
os.environ["SCIPY_ARRAY_API"] = "1"
# Tests run on as many cores as there are: threads that wait for each other would only slow them down.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Virtual machines exist that list AMX and stop a process that uses it, as PyTorch's products in bfloat16 do.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture
def onnx_conversion():
    """Skip the test if torch is too old to convert the networks here to ONNX."""
    import torch

    if torch.__version__ < (2, 8):
        pytest.skip("torch 2.6 and 2.7 convert few networks to ONNX")


@pytest.fixture
def little_memory():
    """No more than 256 MiB beside what the process has already: whoever asks for more gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def default_hangup():
    """SIGHUP as in a terminal, also for the processes started by the test; under nohup it would be ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
