"""Every kernel of the gpu engine compiles for a card, on a machine that has none."""

import json
import os
import subprocess
import sys

import pytest
import torch
import triton.language as tl

from fourward import FourWard, generate
from fourward.engine.gpu import launch
from fourward.engine.gpu.call import Launch
from tests.engine.gpu import force

POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", torch.int64: "*i64"}
#: Reads (module, kernel, pointers, numbers, constants, warps) from its input, compiles each for an H100 or H200.
SCRIPT = """
import importlib, json, sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

for module, kernel, pointers, numbers, constants, warps in json.load(sys.stdin):
    function = getattr(importlib.import_module(module), kernel)
    names, types = function.arg_names, {p.name: p.annotation_type for p in function.params}
    given = names[len(pointers):len(pointers) + numbers]
    signature = dict(zip(names, pointers)) | {n: types[n] or "i32" for n in given}
    fixed = names[len(pointers) + numbers:]
    values = {n: getattr(tl, v[3:]) if str(v).startswith("tl.") else v for n, v in zip(fixed, constants)}
    signature |= {n: "constexpr" for n in fixed}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))}
    source = ASTSource(function, signature, constexprs=values, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": 1})
    print(kernel, len(made.asm["cubin"]))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="the other tests compile them where there is a card")
def test_kernels_compile_for_a_card(monkeypatch, tmp_path):
    seen = {}
    run = Launch.__call__

    def record(self, *tensors):
        constants = [
            f"tl.{v.name.replace('fp', 'float').replace('bf', 'bfloat')}" if isinstance(v, tl.dtype) else v
            for v in self.fixed
        ]
        function = self.kernel.fn
        key = [
            function.__module__,
            function.__name__,
            [POINTERS[t.dtype] for t in tensors],
            len(self.numbers),
            constants,
            self.warps,
        ]
        seen[function.__name__, key[2][1]] = key  # the last of its kind: compiling takes seconds
        run(self, *tensors)

    monkeypatch.setattr(Launch, "__call__", record)
    for name in ("stretches", "lists", "levels"):
        force(name, monkeypatch)
        dag = generate.erdos_renyi(70, 0.2, seed=0)
        for dtype in (torch.float32, torch.bfloat16)[: 1 if name == "stretches" else 2]:
            net = FourWard(dag, engine="gpu", seed=0, dtype=dtype)
            net(torch.randn(3, dag.num_inputs, dtype=dtype, requires_grad=True)).sum().backward()
    launch.forget()
    kernels = {key[1] for key in seen.values()}
    assert kernels == {
        *("panels_forward", "panels_backward", "panels_weights", "panels_products", "panels_products_back"),
        *("lists_forward", "lists_backward", "lists_weights", "lists_enter", "lists_leave", "point"),
    }
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    given = json.dumps(list(seen.values()))
    ended = subprocess.run([sys.executable, "-c", SCRIPT], input=given, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert {line.split()[0] for line in ended.stdout.splitlines()} == kernels
