"""Every kernel of the gpu engine compiles for a GPU, on a machine that has none."""

import json
import os
import subprocess
import sys

import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="the other tests compile them where there is a GPU")
def test_kernels_compile_for_a_card(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.engine.compiles"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stderr == ""
    in_parallel, alone, launched = json.loads(ended.stdout)
    sweeps = ["tiled_backward", "tiled_forward"]  # for the first segment, for the others, and for a network of one
    tiled = [*sweeps * 3, "tiled_products", "tiled_products_backward", *["tiled_weight_grad"] * 2]
    assert sorted(in_parallel) == sorted(f"{name}_kernel" for name in tiled)
    csr = "csr_forward", "csr_backward", "csr_weight_grad", "csr_load_inputs", "csr_store_outputs", "write_addresses"
    recurrent = "forward", "backward", "start_backward", "weight_grad", "load_inputs", "load_state", "load_carry"
    recurrent = *(f"recurrent_{name}" for name in recurrent), "recurrent_store_outputs", "recurrent_store_state"
    population = "population_forward", "population_backward"
    assert set(alone) == {f"{name}_kernel" for name in (*csr, *recurrent, *population)}
    assert launched == []
