"""Metrics of a model."""

import numpy as np
import torch

import fourward as fw
from fourward.train import Model, Scaling, compute_metrics


def test_metrics_are_finite_or_none():
    scaling = Scaling(np.zeros(1), np.ones(1))
    model = Model(fw.FourWard(fw.generate.layered_mlp([1, 2, 1])), ["x"], ["y"], None, scaling, scaling)
    with torch.no_grad():
        model.output_adapter.bias.fill_(torch.inf)
    metrics = compute_metrics(model, np.zeros((3, 1)), np.arange(3.0)[:, None])
    assert {name: metrics[name] for name in ("loss", "r2", "mae", "rmse")} == dict.fromkeys(
        ("loss", "r2", "mae", "rmse")
    )
