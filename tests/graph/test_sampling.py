"""Samples of G(n, p), draw for draw those of rustworkx."""

import numpy as np
import pytest
import rustworkx as rx

from fourward.graph._sampling import gnp_pairs


@pytest.mark.parametrize(
    ("n", "p", "seed"),
    [(1, 0.5, 0), (2, 0.9, 1), (30, 0.0, 2), (30, 1.0, 3), (63, 0.2, 2**63 - 1), (400, 0.97, 5), (5000, 0.001, 2**40)],
)
def test_gnp_draws_what_rustworkx_draws(n, p, seed):
    expected = np.array(rx.undirected_gnp_random_graph(n, p, seed=seed).edge_list(), np.int64).reshape(-1, 2)
    assert set(map(frozenset, gnp_pairs(n, p, seed).tolist())) == set(map(frozenset, expected.tolist()))
    assert len(gnp_pairs(n, p, seed)) == len(expected)


def test_a_probability_too_small_for_a_float():
    assert len(gnp_pairs(100, 1e-20, 0)) == 0
