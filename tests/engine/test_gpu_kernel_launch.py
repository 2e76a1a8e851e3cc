"""Kernels are launched by the names of their parameters, and what is compiled is used again."""

import pytest
import torch
import triton
import triton.language as tl

from fourward import generate
from fourward.engine._gpu import csr_kernels, csr_launch, launch, launch_key, packing, tile_ops, tiled_launch
from fourward.engine._gpu.kernel_launch import Launch, bind
from fourward.engine._gpu.launch_key import LaunchKey
from tests.engine.gpu import DEVICE, STRATEGIES, force, make

TENSORS = ("out", "x")


@triton.jit
def scale_kernel(x, out, rows, columns, FIELD, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) * rows + columns)


SHARED = {"rows": 2, "FIELD": 16, "unused": 7}
EXPLICIT = {"columns": 3, "BLOCK": 8}


def test_arguments_are_ordered_by_the_kernel():
    assert list(bind(scale_kernel, TENSORS, SHARED, EXPLICIT).items()) == [
        ("rows", 2),
        ("columns", 3),
        ("FIELD", 16),
        ("BLOCK", 8),
    ]
    reordered = Launch(scale_kernel, (1,), TENSORS, SHARED, num_warps=1, BLOCK=8, columns=3)
    assert reordered.rest == (2, 3, 16, 8)
    assert reordered.constants == (8,)
    assert reordered.order == [1, 0]  # x is the second tensor of a call


@pytest.mark.parametrize(
    ("shared", "explicit", "message"),
    [
        ({"FIELD": 16}, EXPLICIT, "scale_kernel: missing arguments rows$"),
        ({}, {"BLOCK": 8}, "missing arguments rows, columns, FIELD$"),
        (SHARED, EXPLICIT | {"colums": 3}, "unexpected arguments colums$"),
        (SHARED, EXPLICIT | {"rows": 2}, "multiple values for rows$"),
        (SHARED | {"x": 1}, EXPLICIT, "multiple values for x$"),
        ({"rows": 2}, {"column": 3, "BLOCK": 8, "FIELD": 1}, "missing arguments columns; unexpected arguments column$"),
    ],
)
def test_wrong_names_are_errors_when_a_launch_is_built(shared, explicit, message):
    with pytest.raises(TypeError, match=message):
        Launch(scale_kernel, (1,), TENSORS, shared, num_warps=1, **explicit)


def test_tensors_are_the_first_parameters():
    with pytest.raises(TypeError, match="expected tensors as the first parameters, got x, out, rows"):
        bind(scale_kernel, ("x", "out", "columns"), SHARED, {"BLOCK": 8})


def test_a_launch_with_other_numbers():
    first = Launch(scale_kernel, (1,), TENSORS, SHARED, num_warps=1, **EXPLICIT)
    second = first.replace((5,), rows=9)
    assert (first.grid, first.rest) == ((1,), (2, 3, 16, 8))
    assert (second.grid, second.rest, second.order) == ((5,), (9, 3, 16, 8), first.order)
    for name in ("row", "BLOCK", "x"):  # unknown, a constant, a tensor
        with pytest.raises(TypeError, match=f"scale_kernel: expected names of numbers, got {name}"):
            first.replace((1,), **{name: 1})


def make_key(all_nodes=False):
    net = make(generate.erdos_renyi(100, 0.2, seed=0), seed=0)
    return LaunchKey(
        shape=net.runner.shape,
        batch=20,
        dtype=torch.float32,
        weight_dtype=torch.float32,
        device=torch.device(DEVICE),
        has_bias=True,
        dropout_p=0.25,
        all_nodes=all_nodes,
        needs_backward=True,
        needs_x_grad=True,
    )


@pytest.fixture
def built(monkeypatch):
    """Launches as they are built."""
    launches, init = [], Launch.__init__

    def record(self, *arguments, **explicit):
        init(self, *arguments, **explicit)
        launches.append(self)

    monkeypatch.setattr(Launch, "__init__", record)
    return launches


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("all_nodes", [False, True])
def test_every_field_offset_is_that_of_its_parameter(name, all_nodes, monkeypatch, built):
    force(name, monkeypatch)
    key = make_key(all_nodes)
    module = tiled_launch if key.shape.layout == packing.TILED else csr_launch
    module.Forward(key)
    module.Backward(key)
    assert len(built) >= 3
    columns = {"node_column", "node_row"} if all_nodes else {"output_column", "output_row"}
    for each in built:
        for parameter, value in each.arguments.items():
            if parameter.lower() in packing.Shape._fields:
                assert value == getattr(key.shape, parameter.lower()), parameter
            if parameter in ("OUT_COLUMN", "OUT_ROW"):
                assert value in {getattr(key.shape, column) for column in columns}
    launch.clear_passes()


def test_sizes_that_vary_are_never_specialised_on():
    """A name in RUNTIME that no kernel has would be specialised on without a word."""
    for module, names in ((csr_kernels, csr_kernels._RUNTIME), (tile_ops, tile_ops.RUNTIME)):
        kernels = [tiled_launch, csr_launch] if module is tile_ops else [csr_launch]
        parameters = {
            parameter
            for owner in kernels
            for name, kernel in vars(owner).items()
            if name.endswith("_kernel")
            for parameter in kernel.arg_names
        }
        assert set(names) <= parameters


def test_a_pass_is_looked_up_by_the_fields_of_its_key():
    key = make_key()
    with pytest.raises(AssertionError, match="would be looked up as"):
        launch._store({}, key[:-1], key, None)
    swapped = list(key)
    swapped[7:9] = False, False
    with pytest.raises(AssertionError, match="would be looked up as"):
        launch._store({}, tuple(swapped), key, None)


def test_stored_passes_are_bounded(monkeypatch):
    monkeypatch.setattr(launch, "MAX_PASSES", 3)
    key, passes = make_key(), {}
    for batch in range(5):
        new = key._replace(batch=batch)
        launch._store(passes, tuple(new), new, batch)
    assert list(passes.values()) == [2, 3, 4]


def test_arguments_are_those_of_the_key():
    key = make_key()
    arguments = key.arguments
    assert arguments["B"] == 20
    assert arguments["HAS_DROPOUT"] is True
    assert arguments["threshold"] == 2**30
    assert arguments["DIAGONAL_EDGE_MASK"] == key.shape.diagonal_edge_mask
    assert launch_key.accumulation_dtype(torch.bfloat16) == torch.float32


class Kernel:
    """As Triton's: inspects arguments at a call, and returns what it compiled."""

    arg_names = ("x", "size", "name")

    def __init__(self):
        self.inspected, self.fast = [], []

    @staticmethod
    def fn(x, size, name: "tl.constexpr"): ...

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.inspected.append((grid, arguments[1:], options)) or self.compiled

    @property
    def compiled(self):
        return {(2, 1, 1): lambda *arguments: self.fast.append(arguments)}


def test_what_is_compiled_is_used_again_for_aligned_tensors(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    kernel, buffer = Kernel(), torch.zeros(9)
    each = Launch(kernel, (2,), ("x",), {}, num_warps=4, size=5, name="word")
    each((buffer[1:],))
    assert len(kernel.inspected) == 1  # for unaligned tensors: not to be used again
    each((buffer,))
    assert kernel.inspected[1:] == [((2,), (5, "word"), {"num_warps": 4, "num_stages": 1})]
    each((buffer,))
    each((buffer[4:],))
    assert kernel.fast == [(buffer.data_ptr(), 5, "word"), (buffer.data_ptr() + 16, 5, "word")]
    each((buffer[1:],))
    assert len(kernel.inspected) == 3
