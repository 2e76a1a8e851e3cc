"""The launches of fused runs: kernels of fused.cu, compiled for a network's types and activations."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fourward.engine._dropout import NODE_FACTOR, SAMPLE_FACTOR, float64_bits, threshold
from fourward.engine._gpu.cuda_kernels import CudaModule
from fourward.engine._gpu.fused_schedule import HEADER_WORDS, BlockShape, FusedRun
from fourward.plan.activations import ACTIVATIONS

if TYPE_CHECKING:
    from fourward.engine._gpu.launch_key import LaunchKey

_CPP_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "half_t",
    torch.bfloat16: "bfloat16_t",
}

EMULATED_SHARED_BYTES = 1 << 18  #: `shared` in emulated_cuda.h

_FILL = {
    "table": "*", "weight_slot": "int", "bias_slot": "int", "scratch_slot": "int", "row_columns": "*",
    "plan_headers": "*", "plan_lines": "*", "headers": "i64", "lines": "i64",
}  # fmt: skip
_FORWARD = {
    "table": "*", "saved_slot": "int", "key_slot": "int", "scratch_slot": "int", "warp_lines": "*", "headers": "i64",
    "first_header": "i64", "first_line": "i64", "rounds": "int", "slot_bytes": "int", "rows": "i64", "slices": "int",
    "threshold": "i64", "p_bits": "i64",
}  # fmt: skip
_BACKWARD = (
    dict(list(_FORWARD.items())[:4])
    | {"deltas_slot": "int", "out_grad_slot": "int"}
    | dict(list(_FORWARD.items())[4:])
    | {"B": "int", "columns": "int"}
)


class _ToCpp(ast.NodeTransformer):
    """Rewrites a formula of the table as C++ over the type A; its functions are overloaded there."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Call(ast.Name("A"), [ast.Constant(float(node.value))], [])  # type: ignore[arg-type]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.func, ast.Name)
        node.func.id = {"abs": "fabs"}.get(node.func.id, node.func.id)
        return node


def _to_cpp(formula: str) -> str:
    return ast.unparse(_ToCpp().visit(ast.parse(formula, mode="eval")).body)


def _activation_macros(codes: int) -> dict[str, str]:
    """ACTIVATE and ACTIVATION_BACKWARD: chosen by code among those that the network has."""
    rows = [row for row in ACTIVATIONS.values() if codes >> row.code & 1]
    macros = {}
    for name, parameters in (("ACTIVATE", "z"), ("ACTIVATION_BACKWARD", "z,a,grad")):
        formulas = [_to_cpp(row.formula if name == "ACTIVATE" else row.backward) for row in rows]
        chosen = formulas[-1]
        for row, formula in zip(rows[-2::-1], formulas[-2::-1], strict=True):
            chosen = f"code=={row.code}?({formula}):({chosen})"
        macros[f"{name}(code,{parameters})"] = f"({chosen})".replace(" ", "")
    return macros


@lru_cache(maxsize=64)
def _module(
    x: torch.dtype, weight: torch.dtype, acc: torch.dtype, block: BlockShape, block_b: int, codes: int,
    has_dropout: bool, save_z: bool, device: torch.device,
) -> CudaModule:  # fmt: skip
    types = {"X": _CPP_TYPES[x], "W": _CPP_TYPES[weight], "A": _CPP_TYPES[acc]}
    sizes = {"K": block.k, "WARPS": block.warps, "LANES": block.lanes, "BLOCK_B": block_b}
    sizes["EXPECTED_RING_BYTES"] = block.ring_bytes(acc.itemsize)
    flags = {"HAS_DROPOUT": has_dropout, "SAVE_Z": save_z}
    factors = {"NODE_FACTOR": f"{NODE_FACTOR}u", "SAMPLE_FACTOR": f"{SAMPLE_FACTOR}u"}
    numbers = {name: str(int(value)) for name, value in (sizes | flags).items()}
    return CudaModule("fused.cu", types | numbers | factors | _activation_macros(codes), device)


def _shared_bytes(key: LaunchKey) -> int:
    return key.shape.block.shared_bytes(key.shape.fused_slots, key.acc_dtype.itemsize)


def fit(key: LaunchKey) -> bool:
    """Whether a block of this device has enough shared memory for the fused runs of a plan, if it has any."""
    if not key.shape.fused_warps:
        return False
    if key.device.type != "cuda":
        return _shared_bytes(key) <= EMULATED_SHARED_BYTES
    properties: Any = torch.cuda.get_device_properties(key.device)
    return bool(_shared_bytes(key) <= properties.shared_memory_per_block_optin)


class FusedRuns:
    """All fused runs of a pass of one direction.

    Args:
        key: The pass.
        backward: The direction.
        slots: The tensors of the pointer table.
    """

    def __init__(self, key: LaunchKey, backward: bool, slots: Sequence[str]) -> None:
        shape = self.shape = key.shape
        self.key, self.backward, self.slots = key, backward, {name: i for i, name in enumerate(slots)}
        self.headers, self.lines = (
            (shape.back_fused_header_count, shape.back_fused_line_count)
            if backward
            else (shape.fused_header_count, shape.fused_line_count)
        )
        size, block = key.acc_dtype.itemsize, shape.block
        self.shared_bytes, self.slot_bytes = _shared_bytes(key), block.slot_bytes(shape.fused_slots, size)
        module = _module(
            key.dtype, key.weight_dtype, key.acc_dtype, block, key.config.block_b, shape.codes,
            key.dropout_p is not None, key.save_z, key.device,
        )  # fmt: skip
        self.fill = module.kernel("fill_streams", _FILL)
        name, signature = ("fused_backward", _BACKWARD) if backward else ("fused_forward", _FORWARD)
        self.kernel = module.kernel(name, signature, self.shared_bytes)
        self.line_edges = block.groups * block.k
        # Rings read beyond the last stream, by a ring at most.
        stream_bytes = self.headers * HEADER_WORDS * 4 + self.lines * self.line_edges * (4 + size)
        self.scratch_bytes = stream_bytes + block.ring_bytes(size)

    def read(self, packed_plan: Tensor) -> list[FusedRun]:
        """All fused runs, read from the GPU."""
        shape = self.shape
        start, count = (
            (shape.back_fused_runs, shape.back_fused_count) if self.backward else (shape.fused_runs, shape.fused_count)
        )
        return [FusedRun(*row) for row in packed_plan[start : start + 5 * count].view(count, 5).tolist()]

    def allocate(self, like: Tensor) -> Tensor:
        """Memory for the streams of a pass."""
        return like.new_empty(self.scratch_bytes, dtype=torch.uint8)

    def launch_fill(self, packed_plan: Tensor, table: Tensor) -> None:
        """Fill weights and biases into the streams."""
        plan, shape, backward = packed_plan.data_ptr(), self.shape, self.backward
        self.fill.launch(
            min(-(-max(self.lines * self.line_edges, self.headers) // 256), 2048), 256, 0, self.key.device,
            table=table.data_ptr(),
            weight_slot=self.slots["weight"],
            bias_slot=self.slots.get("bias", -1) if self.key.has_bias else -1,  # deltas need no biases
            scratch_slot=self.slots["scratch"],
            row_columns=plan + 4 * (shape.node_column if self.key.all_nodes else shape.output_column),
            plan_headers=plan + 4 * (shape.back_fused_headers if backward else shape.fused_headers),
            plan_lines=plan + 4 * (shape.back_fused_lines if backward else shape.fused_lines),
            headers=self.headers,
            lines=self.lines,
        )  # fmt: skip

    def launch(self, index: int, run: FusedRun, packed_plan: Tensor, table: Tensor) -> None:
        """Launch a fused run, the one of this index."""
        key, shape = self.key, self.shape
        warp_lines = shape.back_fused_warp_lines if self.backward else shape.fused_warp_lines
        p = key.dropout_p
        arguments = {
            "table": table.data_ptr(),
            **{f"{name}_slot": self.slots[name] for name in ("saved", "key", "scratch")},
            "warp_lines": packed_plan.data_ptr() + 4 * (warp_lines + index * shape.fused_warps),
            "headers": self.headers,
            "first_header": run.first_header,
            "first_line": run.first_line,
            "rounds": run.rounds,
            "slot_bytes": self.slot_bytes,
            "rows": shape.rows,
            "slices": key.slices,
            "threshold": 0 if p is None else threshold(p),
            "p_bits": 0 if p is None else float64_bits(p),
        }
        if self.backward:
            arguments |= {f"{name}_slot": self.slots[name] for name in ("deltas", "out_grad")}
            arguments |= {"B": key.batch, "columns": key.columns}
        grid = -(-key.batch // shape.block.lanes)
        self.kernel.launch(grid, shape.fused_warps * 32, self.shared_bytes, key.device, **arguments)
