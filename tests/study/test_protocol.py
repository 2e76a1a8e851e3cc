"""Protocols: the paper's numbers, their parts, and words that aren't any."""

import math

import pytest

from fourward.errors import OptionError
from fourward.study._protocol import EXPERIMENTS, METHODS, Protocol, cell_of, from_words, keys_of, paper


def test_the_paper():
    wanted = {"times": 5 * 5 * 3 * 30 * 4, "training": 5 * 5 * 3 * 30 * 4, "attributes": 5 * 5 * 30}
    wanted["reassignment"] = 5 * 30 * 10 * 2
    for experiment in EXPERIMENTS:
        keys = list(keys_of(experiment, paper(experiment)))
        assert len(keys) == len({tuple(sorted(key.items())) for key in keys}) == wanted[experiment]
        assert paper(experiment).reduced(experiment) == []
    first = next(keys_of("times", paper("times")))
    assert first == {
        "size": 64, "p": 0.2, "batch": 32, "seed": 0, "method": "sequential", "device": "cpu", "batches": 100
    }  # fmt: skip


def test_a_study_that_stops_early_has_seen_all_cells_equally_often():
    protocol = Protocol(seeds=3)
    keys = list(keys_of("times", protocol))
    for whole in (1, 2):
        part = keys[: len(keys) * whole // 3]
        assert {key["seed"] for key in part} == set(range(whole))
        assert len({cell_of(key) for key in part}) == 75 * 4


def test_words_of_a_command_line():
    protocol = from_words("times", sizes="64, 128", densities="1,0.5", methods="4ward", seeds=2, batches=None)
    assert (protocol.sizes, protocol.densities, protocol.methods) == ((64, 128), (1.0, 0.5), ("4ward",))
    assert (protocol.seeds, protocol.batches, protocol.batch_sizes) == (2, 100, (32, 128, 512))
    assert Protocol.from_dict(protocol.as_dict()) == protocol
    assert protocol.limit == math.inf
    assert from_words("times", cell_seconds=2.5).limit == 2.5


def test_what_was_reduced_is_said():
    protocol = from_words("reassignment", seeds=5, cell_seconds=3.0, device="cuda")
    assert protocol.reduced("reassignment") == ["seeds: 5 instead of 30", "cell_seconds: 3.0 instead of no limit"]
    assert protocol.reduced("attributes")[-1] == "seeds: 5 instead of 30"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"methods": "4ward,5ward"}, "methods: '5ward' came, but there are only 'sequential', 'deepstruct', '4ward'"),
        ({"sizes": "64,1"}, "sizes: 1 came, but a whole number from 2 to 16384 was wanted"),
        ({"sizes": "99999"}, "from 2 to 16384"),
        ({"sizes": "many"}, "sizes: many came, but whole numbers were wanted"),
        ({"sizes": ""}, "whole numbers were wanted"),
        ({"sizes": "64.5"}, "whole numbers were wanted"),
        ({"densities": "0.2,1.2"}, "densities: 1.2 came, but a number from 0 to 1 was wanted"),
        ({"densities": "0"}, "without edges"),
        ({"densities": "nan"}, "from 0 to 1"),
        ({"batch_sizes": "0"}, "batch_sizes: 0 came"),
        ({"seeds": 0}, "seeds: 0 came"),
        ({"seeds": 1.5}, "a whole number"),
        ({"batches": -1}, "batches: -1 came"),
        ({"variants": True}, "variants: True came"),
        ({"cell_seconds": 0.0}, "cell_seconds: 0.0 came"),
        ({"device": "tpu"}, "device: 'tpu' came, but there are only 'cpu', 'cuda'"),
    ],
)
def test_words_that_are_wrong(words, said):
    with pytest.raises(OptionError) as caught:
        from_words("times", **words)
    assert said in str(caught.value)


def test_an_unknown_experiment():
    with pytest.raises(OptionError, match="'flavour' came, but there are only 'attributes', 'times'"):
        paper("flavour")
    with pytest.raises(OptionError, match="at least one"):
        Protocol(methods=())


def test_repeated_words_count_once():
    assert Protocol(sizes=(64, 64), methods=METHODS * 2).methods == METHODS
