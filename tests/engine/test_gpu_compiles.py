"""Every kernel of the gpu engine compiles for a card, on a machine that has none."""

import json
import os
import subprocess
import sys

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="the other tests compile them where there is a card")
def test_kernels_compile_for_a_card(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.engine.compiles"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stderr == ""
    apart, alone, wrong = json.loads(ended.stdout)
    walk = ["panels_backward", "panels_forward"]  # the first stretch, the others, and a network of one
    assert sorted(apart) == sorted([*walk * 3, "panels_products", "panels_products_back", *["panels_weights"] * 2])
    assert set(alone) == {"lists_forward", "lists_backward", "lists_weights", "lists_enter", "lists_leave", "point"}
    assert wrong == []
