"""The bounds of the activation table; the engines' contract suite tests formulas and derivatives."""

import math

import pytest
import torch

from fourward.engine._torch_activations import TORCH_FUNCTIONS
from fourward.plan.activations import ACTIVATIONS


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bounds(name):
    """No value is outside of the bounds, and each finite one is approached."""
    row = ACTIVATIONS[name]
    values = TORCH_FUNCTIONS[row.code](torch.linspace(-20, 20, 40_001, dtype=torch.float64))
    lower, upper = row.bounds
    assert lower <= values.min() <= values.max() <= upper
    assert values.min() < -0.15 if math.isinf(lower) else values.min() < lower + 1e-3
    assert values.max() > 15 if math.isinf(upper) else values.max() > upper - 1e-3
