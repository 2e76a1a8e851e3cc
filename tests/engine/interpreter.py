"""Triton's interpreter, faster: it spends most of its time on what no result depends on.

At every call of a device function it patches its language: a launch patches and restores it, and a second time changes
nothing. It computes whether integers overflow and drops the answer, as it asserts nothing unless it debugs. And it
describes the shape and the type of every tensor anew, though there are few of them.
"""

import dataclasses
import math
from functools import cache

import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

_patch_language, _block_init = interpreter._patch_lang, core.block_type.__init__
_broadcast = TritonSemantic.broadcast_impl_value
_patched: set[tuple[str, ...]] = set()  # the modules that were patched during the launch that is running
_block_types: dict[tuple[str, tuple[int, ...]], dict[str, object]] = {}  # attributes, by type of elements and shape
_tensor_shapes: dict[tuple[int, ...], tuple[core.tuple, core.constexpr]] = {}  # one object for each shape


class _Nothing:
    def restore(self) -> None:
        """Only the launch restores."""


@cache
def _language_names(function) -> tuple[str, ...]:
    return tuple(name for name, value in function.__globals__.items() if value is tl or value is tl.core)


def _patch_once(function):
    modules = _language_names(function)
    if modules in _patched:
        return _Nothing()
    scope = _patch_language(function)
    if not _patched:  # the launch itself
        restore = scope.restore

        def restore_and_forget() -> None:
            _patched.clear()
            restore()

        scope.restore = restore_and_forget
    _patched.add(modules)
    return scope


def _remember(function):
    """Call a function of a type once for each type; types of pointers can't be hashed, but have a name each."""
    results = {}

    def remembered(dtype):
        name = dtype.name
        if name not in results:
            results[name] = function(dtype)
        return results[name]

    return remembered


def _tensor_shape(*sizes: int) -> tuple[core.tuple, core.constexpr]:
    """The shape of a tensor and its number of elements."""
    return core.tuple([core.constexpr(size) for size in sizes]), core.constexpr(math.prod(sizes))


_SCALAR = _tensor_shape()


def _init_block_type(self, element_ty, shape) -> None:
    sizes = tuple(map(core._unwrap_if_constexpr, shape))
    key = element_ty.name, sizes
    if key not in _block_types:
        _block_init(self, element_ty, shape)
        _block_types[key] = vars(self) | {"tensor_shape": _tensor_shapes.setdefault(sizes, _tensor_shape(*sizes))}
    vars(self).update(_block_types[key], element_ty=element_ty)


def _init_tensor(self, handle, type) -> None:
    self.handle, self.type, self.dtype = handle, type, type.scalar
    self.shape, self.numel = type.tensor_shape if type.is_block() else _SCALAR


def _broadcast_unequal(self, lhs, rhs):
    """Tensors of one shape share an object that describes it."""
    return (lhs, rhs) if lhs.shape is rhs.shape else _broadcast(self, lhs, rhs)


def install() -> None:
    """From now on, in this process."""
    options = interpreter.interpreter_builder.options
    assert not options.debug, "where overflows are asserted, they are not to be ignored"
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    interpreter._patch_lang = _patch_once
    interpreter._get_np_dtype = _remember(interpreter._get_np_dtype)
    core.block_type.__init__, core.tensor.__init__ = _init_block_type, _init_tensor
    TritonSemantic.broadcast_impl_value = _broadcast_unequal
