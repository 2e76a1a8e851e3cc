"""The one table of tolerances: largest error over the largest value, or over 1 where all are smaller."""

import torch

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def assert_near(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype | None = None) -> None:
    """`want` is exact, or as good as; the tolerance is that of got's dtype."""
    assert got.shape == want.shape
    assert torch.isfinite(want).all(), "a reference with NaN compares nothing"
    if want.numel():
        scale = max(1.0, want.abs().max().item())
        error = (got.double() - want.double()).abs().max().item() / scale
        assert error <= TOLERANCE[dtype or got.dtype], f"error {error:.3g}"
