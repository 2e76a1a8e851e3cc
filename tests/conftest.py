import gc
import os

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():  # Triton's interpreter replaces the GPU; it checks when kernels are imported
    os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("fourward", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fourward")
torch.set_num_threads(1)  # tiny shapes; and a machine that is shared stays quick

gc.disable()  # while tests are collected: garbage is searched for in what stays, for a quarter of that time


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)  # after -k has chosen
def pytest_collection_modifyitems(items):
    """FOURWARD_SHARE=i/n runs every n-th test from the i-th on, for tests in several processes."""
    share, of = map(int, os.environ.get("FOURWARD_SHARE", "0/1").split("/"))
    items[:] = items[share::of]
