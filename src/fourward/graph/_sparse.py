"""scipy.sparse matrices as coordinates, checked before scipy's compiled code sees them: it trusts its index arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward.errors import GraphError


def to_coordinates(matrix: Any) -> Any:
    """A sparse matrix in coordinate format, whatever arrays it was made of; raises GraphError for invalid ones."""
    try:
        _CHECKS.get(matrix.format, _check_nothing)(matrix)
        coordinates = matrix.tocoo()
        _check_coordinates(coordinates)
    except (ValueError, TypeError, IndexError, OverflowError, AttributeError) as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError(f"expected a valid {matrix.format} matrix, got one that scipy rejects: {error}") from None
    return coordinates


def _check_nothing(matrix: Any) -> None:
    """Formats that Python or NumPy convert, which check bounds themselves, need no check here."""


def _check_compressed(matrix: Any) -> None:
    """Check csr, csc and bsr; scipy's `check_format` skips some of this if the last index pointer is 0."""
    indptr, indices = matrix.indptr, matrix.indices
    _check_integers(matrix, indptr=indptr, indices=indices)
    size, block = matrix.shape[matrix.format == "csc"], matrix.blocksize[0] if matrix.format == "bsr" else 1
    if len(indptr) != size // block + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise _error(matrix, f"indptr to be {size // block + 1:,} ascending integers from 0 on")
    if indptr[-1] != len(indices) or len(matrix.data) != len(indices):
        raise _error(
            matrix, f"{int(indptr[-1]):,} indices and as many values, which is where indptr ends (see matrix.prune())"
        )


def _check_diagonals(matrix: Any) -> None:
    offsets, size = matrix.offsets, matrix.shape[0]
    _check_integers(matrix, offsets=offsets)
    if matrix.data.ndim != 2 or len(matrix.data) != len(offsets) or len(np.unique(offsets)) != len(offsets):
        raise _error(matrix, "distinct offsets, one for each row of data")
    if len(offsets) and (offsets.min() <= -size or offsets.max() >= size):
        raise _error(matrix, f"offsets from {1 - size:,} to {size - 1:,}")


def _check_rows(matrix: Any) -> None:
    if len(matrix.rows) != matrix.shape[0] or [*map(len, matrix.rows)] != [*map(len, matrix.data)]:
        raise _error(matrix, "as many values as columns in each row")


def _check_coordinates(matrix: Any) -> None:
    _check_integers(matrix, row=matrix.row, col=matrix.col)
    if not len(matrix.row) == len(matrix.col) == len(matrix.data):
        raise _error(matrix, "as many rows as columns and values")
    for indices, size in zip((matrix.row, matrix.col), matrix.shape, strict=True):
        if len(indices) and (indices.min() < 0 or indices.max() >= size):
            raise _error(matrix, f"indices from 0 to {size - 1:,}")


def _check_integers(matrix: Any, **arrays: Any) -> None:
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise _error(matrix, f"{name} to be a vector of integers")


def _error(matrix: Any, expected: str) -> GraphError:
    return GraphError(f"expected {expected} in a {matrix.format} matrix of shape {matrix.shape}, got others.")


_CHECKS = {
    "csr": _check_compressed,
    "csc": _check_compressed,
    "bsr": _check_compressed,
    "dia": _check_diagonals,
    "lil": _check_rows,
}
