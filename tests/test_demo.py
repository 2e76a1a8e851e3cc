"""The demo as `make demo` runs it."""

import subprocess
import sys

from fourward import FourWard, demo, generate
from fourward.study._timing import HostClock


def test_the_worm_learns_the_digits(tmp_path, capsys):
    outcome = demo.run(tmp_path)
    assert outcome.accuracy >= 0.95
    assert outcome.picture.read_bytes().startswith(b"\x89PNG")
    assert len(outcome.times) == 2
    assert all(forward > 0 and step > 0 for forward, step in outcome.times.values())
    printed = " ".join(capsys.readouterr().out.split())
    for words in (
        "302 neurons",
        "2,407 connections from 83 sensory to 123 motor neurons",
        "height 47",
        "attenuation 6.43",
        "held-out",
        "the paper's method",
    ):
        assert words in printed


def test_slow_methods_are_timed_once(monkeypatch):
    calls = []
    monkeypatch.setattr(HostClock, "time", lambda clock, call, count=1: calls.append(count) or 1.0)
    calibration = 2 * 4  # two calls each of two methods, forward and backward
    net = FourWard(generate.chain(3), seed=0)
    assert set(demo.time_methods(net, limit=-1.0).values()) == {(1.0, 1.0)}
    assert calls == [1] * (calibration + 4)
    calls.clear()
    demo.time_methods(net, rounds=3, limit=60.0)
    assert calls == [1] * (calibration + 3 * 4)


def test_the_command_explains_itself():
    done = subprocess.run([sys.executable, "-m", "fourward.demo", "--help"], capture_output=True, text=True, check=True)
    assert "--epochs" in done.stdout
