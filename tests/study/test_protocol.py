"""Protocols: the paper's, parts of it, and values that are refused."""

import math

import pytest

from fourward._cli.study import parse_protocol
from fourward.errors import OptionError
from fourward.study._protocol import EXPERIMENTS, METHODS, Protocol, cell_key, iter_keys, paper_protocol


def test_the_paper_protocol():
    counts = {"times": 5 * 5 * 3 * 30 * 4, "training": 5 * 5 * 3 * 30 * 4, "attributes": 5 * 5 * 30}
    counts["reassignment"] = 5 * 30 * 10 * 2
    for experiment in EXPERIMENTS:
        keys = list(iter_keys(experiment, paper_protocol(experiment)))
        assert len(keys) == len({tuple(sorted(key.items())) for key in keys}) == counts[experiment]
        assert paper_protocol(experiment).reduced(experiment) == []
    first = next(iter_keys("times", paper_protocol("times")))
    assert first == {
        "size": 64, "p": 0.2, "batch": 32, "seed": 0, "method": "sequential", "device": "cpu", "batches": 100
    }  # fmt: skip


def test_a_study_that_stops_early_has_seen_all_cells_equally_often():
    protocol = Protocol(seeds=3)
    keys = list(iter_keys("times", protocol))
    for complete in (1, 2):
        part = keys[: len(keys) * complete // 3]
        assert {key["seed"] for key in part} == set(range(complete))
        assert len({cell_key(key) for key in part}) == 75 * 4


def test_options_of_a_command_line():
    protocol = parse_protocol(
        "times", {"sizes": "64, 128", "densities": "1,0.5", "methods": "4ward", "seeds": 2, "batches": None}
    )
    assert (protocol.sizes, protocol.densities, protocol.methods) == ((64, 128), (1.0, 0.5), ("4ward",))
    assert (protocol.seeds, protocol.batches, protocol.batch_sizes) == (2, 100, (32, 128, 512))
    assert Protocol.from_dict(protocol.as_dict()) == protocol
    assert protocol.limit == math.inf
    assert parse_protocol("times", {"cell_seconds": 2.5}).limit == 2.5


def test_reductions_are_listed():
    protocol = parse_protocol("reassignment", {"seeds": 5, "cell_seconds": 3.0, "device": "cuda"})
    assert protocol.reduced("reassignment") == ["seeds: 5 instead of 30", "cell_seconds: 3.0 instead of no limit"]
    assert protocol.reduced("attributes")[-1] == "seeds: 5 instead of 30"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"methods": "4ward,5ward"}, "unknown method '5ward'. Choose from 'sequential', 'deepstruct', '4ward'"),
        ({"sizes": "64,1"}, "sizes: expected an int from 2 to 16,384, got 1."),
        ({"sizes": "99999"}, "from 2 to 16,384"),
        ({"sizes": "many"}, "sizes: expected ints, got 'many'."),
        ({"sizes": ""}, "expected ints, got"),
        ({"sizes": "64.5"}, "expected ints, got"),
        ({"densities": "0.2,1.2"}, "densities: expected a number from 0 to 1, got 1.2."),
        ({"densities": "0"}, "without edges"),
        ({"densities": "nan"}, "from 0 to 1"),
        ({"batch_sizes": "0"}, "batch_sizes: expected an int from 1 to 1,048,576, got 0."),
        ({"seeds": 0}, "seeds: expected an int from 1 to 10,000, got 0."),
        ({"seeds": 1.5}, "seeds: expected an int"),
        ({"batches": -1}, "batches: expected an int from 1 to 1,000,000, got -1."),
        ({"variants": True}, "variants: expected an int from 1 to 10,000, got True."),
        ({"cell_seconds": 0.0}, "cell_seconds: expected a number from 0.001 to 1e+09, got 0.0."),
        ({"device": "tpu"}, "unknown device 'tpu'. Choose from 'cpu', 'cuda'."),
    ],
)
def test_wrong_values_are_refused(words, message):
    with pytest.raises(OptionError) as caught:
        parse_protocol("times", words)
    assert message in str(caught.value)


def test_an_unknown_experiment():
    with pytest.raises(OptionError, match=r"unknown experiment 'flavour'\. Choose from 'attributes', 'times'"):
        paper_protocol("flavour")
    with pytest.raises(OptionError, match="at least one"):
        Protocol(methods=())


def test_repeated_values_count_once():
    assert Protocol(sizes=(64, 64), methods=METHODS * 2).methods == METHODS
