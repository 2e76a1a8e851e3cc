"""The timing core: turns, limits, and partial results of runs that were cut off."""

import gc
import signal
import sys
import threading
import time
import weakref
from contextlib import suppress
from importlib import import_module
from itertools import pairwise

import pytest
import torch

from fourward.study._limits import CutOff, frozen_heap, one_line, time_limit
from fourward.study._timing import (
    HostClock,
    LaunchClock,
    Turn,
    alternate,
    median_seconds,
    summarize_turns,
    time_batches,
    training_step,
)


class Calls:
    """Calls by name, each noting that it was made and taking a time of its own on a clock of its own."""

    def __init__(self, **seconds):
        self.made, self.seconds = [], seconds

    def __getitem__(self, name):
        return lambda: self.made.append(name)

    def all(self):
        return {name: self[name] for name in self.seconds}


class Clock(HostClock):
    """Says what each call would have taken."""

    def __init__(self, calls):
        self.calls = calls

    def time(self, call, calls=1):
        for _ in range(calls):
            call()
        return calls * self.calls.seconds[self.calls.made[-1]]


def test_runs_time_batches_and_every_batch_counts_once():
    calls = Calls(quick=0.001, slow=0.1)
    results = dict(time_batches(calls.all(), Clock(calls), batches=10))
    assert results["quick"].status == results["slow"].status == "done"
    for name, seconds in calls.seconds.items():
        values = results[name].values
        assert values["count"] == 10
        assert values["mean"] == pytest.approx(seconds)
        assert values["median"] == pytest.approx(seconds)
        assert values["deviation"] == pytest.approx(0, abs=1e-12)
    made = calls.made
    assert made.count("slow") == 1 + 10  # the first warms up
    assert made.count("quick") == 1 + 5 * (2 + 2)  # five turns of two, each after two that aren't counted
    changes = sum(first != second for first, second in pairwise(made))
    assert changes >= 10


def test_short_runs_end_first_and_come_out_first():
    calls = Calls(slow=0.1, quick=0.001)
    assert [name for name, _ in time_batches(calls.all(), Clock(calls), batches=20)] == ["quick", "slow"]


def test_a_summary_weighs_turns_by_their_batches():
    results = summarize_turns([(2, 2.0), (1, 4.0)])
    assert results == {"mean": 2.0, "median": 2.5, "deviation": pytest.approx(4.5**0.5), "count": 3}
    assert summarize_turns([(3, 6.0)]) == {"mean": 2.0, "median": 2.0, "deviation": None, "count": 3}
    assert summarize_turns([]) == {"mean": None, "median": None, "deviation": None, "count": 0}


def test_medians_are_of_alternating_turns_until_each_has_had_its_rounds():
    calls = Calls(often=0.5, seldom=2.0)
    turns = {"often": Turn(calls["often"], 3, 1, 4), "seldom": Turn(calls["seldom"], 1, 0, 2)}
    assert alternate(turns, Clock(calls)) == {"often": 0.5, "seldom": 2.0}
    assert calls.made == 2 * [*["often"] * 4, "seldom"] + 2 * ["often"] * 4
    calls.made.clear()
    alternate(turns, Clock(calls), seconds=-1.0, min_rounds=3)
    assert calls.made == 2 * [*["often"] * 4, "seldom"] + ["often"] * 4
    assert alternate({}, Clock(calls)) == {}


def test_turns_of_short_calls_warm_up_and_are_longer():
    calls = Calls(short=0.001, long=0.1)
    assert median_seconds(calls.all(), Clock(calls), max_rounds=2) == pytest.approx({"short": 0.001, "long": 0.1})
    assert calls.made == ["short"] * 3 + ["long"] * 3 + 2 * (["short"] * (2 + 5) + ["long"])


def test_cold_turns_are_single_calls():
    calls = Calls(a=0.001, b=0.001)
    median_seconds(calls.all(), Clock(calls), max_rounds=3, cold=True)
    assert calls.made == ["a"] * 3 + ["b"] * 3 + 3 * ["a", "b"]


def test_the_host_is_timed_from_an_idle_device_on():
    events = []

    class Device(HostClock):
        def synchronize(self):
            events.append("idle")

    assert LaunchClock(Device()).time(lambda: events.append("call"), 2) > 0
    assert events == ["idle", "call", "call"]


def test_what_is_too_slow_is_cut_off_with_what_was_seen():
    def slow():
        time.sleep(0.06)

    results = dict(time_batches({"slow": slow, "quick": lambda: None}, HostClock(), batches=50, limit=0.4))
    assert results["quick"].status == "done"
    timed = results["slow"]
    assert timed.status == "cut off"
    assert 1 <= timed.values["count"] < 10
    assert 0.06 <= timed.values["mean"] < 0.4
    assert f"with {timed.values['count']} of 50 batches counted" in timed.note
    assert timed.seconds >= 0.4


def test_a_call_that_does_not_end_is_interrupted():
    def endless():
        end = time.perf_counter() + 30
        while time.perf_counter() < end:
            pass

    ((_, timed),) = time_batches({"endless": endless}, HostClock(), batches=5, limit=0.1)
    assert (timed.status, timed.values["count"], timed.values["mean"]) == ("cut off", 0, None)


def test_the_first_batch_counts_if_it_is_all_there_is():
    pauses = iter([0.05, 60.0])

    def slower_and_slower():
        end = time.perf_counter() + next(pauses)
        while time.perf_counter() < end:
            pass

    ((_, timed),) = time_batches({"slow": slower_and_slower}, HostClock(), batches=5, limit=0.3)
    assert (timed.status, timed.values["count"]) == ("cut off", 1)
    assert 0.05 <= timed.values["mean"] < 0.3
    assert "only the first, a warm-up, was measured" in timed.note


def test_compiling_is_no_part_of_a_run():
    pauses = iter([0.3])
    call = {"ours": lambda: time.sleep(next(pauses, 0))}
    ((_, timed),) = time_batches(call, HostClock(), batches=5, limit=0.2, compiled=frozenset(call))
    assert (timed.status, timed.values["count"]) == ("done", 5)


def test_an_error_ends_its_own_run_only():
    def broken():
        raise MemoryError("no room\nat all")

    def check(name, result):
        if result == "wrong":
            raise ArithmeticError("that's wrong")

    calls = {"broken": broken, "fine": lambda: "right", "wrong": lambda: "wrong"}
    results = dict(time_batches(calls, HostClock(), batches=3, check=check))
    assert results["broken"][1:3] == ("failed", "MemoryError: no room")
    assert results["wrong"][1:3] == ("failed", "ArithmeticError: that's wrong")
    assert results["fine"].values["count"] == 3


def test_an_error_in_one_line_is_text_that_can_be_stored():
    assert one_line(ValueError("no \udcff\nmore")) == r"ValueError: no \udcff"


@pytest.mark.parametrize("grad", [True, False])
def test_autograd_records_only_where_it_is_asked_to(grad):
    states = []
    list(time_batches({"a": lambda: states.append(torch.is_grad_enabled())}, HostClock(), batches=2, grad=grad))
    assert set(states) == {grad}
    assert torch.is_grad_enabled()


def test_garbage_is_collected_between_runs_and_not_time_limit():
    states = []
    assert gc.isenabled()
    for _ in time_batches({"a": lambda: states.append(gc.isenabled())}, HostClock(), batches=2):
        pass
    assert set(states) == {False}
    assert gc.isenabled()


@pytest.mark.parametrize("frozen", [False, True])
def test_only_what_the_caller_froze_stays_frozen(frozen):
    gc.unfreeze()
    try:
        if frozen:
            gc.freeze()
        with frozen_heap():
            assert gc.get_freeze_count() > 0
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.freeze()


def test_an_import_is_not_interrupted(tmp_path, monkeypatch):
    (tmp_path / "slowly_imported.py").write_text(
        "import time\nfor _ in range(5):\n    time.sleep(0.01)\ncomplete = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def import_and_go_on():
        with time_limit(0.01):
            import_module("slowly_imported")
            while True:
                pass

    with pytest.raises(CutOff):
        import_and_go_on()
    assert sys.modules["slowly_imported"].complete


def test_an_alarm_restores_handler_and_timer():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(CutOff), time_limit(0.01):
        time.sleep(60)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_an_alarm_that_rings_at_once_restores_handler_and_timer():
    before = signal.getsignal(signal.SIGALRM)
    for _ in range(300):
        with suppress(CutOff), time_limit(1e-6):
            pass
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_that_rings_where_nobody_can_hear_it_rings_again(monkeypatch):
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)

    def let_go():
        thing = HostClock()
        weakref.finalize(thing, time.sleep, 0.2)  # the alarm rings in here, which can't raise
        del thing
        time.sleep(60)

    with pytest.raises(CutOff), time_limit(0.1):
        let_go()
    assert heard == []
    assert sys.unraisablehook == heard.append


def test_what_else_a_callback_raises_is_still_reported(monkeypatch):
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    with time_limit(60):
        thing = HostClock()
        reference = weakref.ref(thing, lambda _: 1 / 0)
        del thing
    assert reference() is None
    assert [type(each.exc_value) for each in heard] == [ZeroDivisionError]


def test_without_alarms_a_call_ends_by_itself_and_is_cut_off_then():
    results = []
    work = {"slow": lambda: time.sleep(0.1)}
    thread = threading.Thread(target=lambda: results.extend(time_batches(work, HostClock(), batches=9, limit=0.15)))
    thread.start()
    thread.join()
    ((_, timed),) = results
    assert timed.status == "cut off"
    assert timed.values["count"] >= 1


def test_a_training_step_changes_nothing_and_has_gradients():
    model = torch.nn.Linear(3, 2)
    before = model.weight.detach().clone()
    training_step(model, torch.ones(4, 3))()
    assert model.weight.grad.abs().sum() > 0
    torch.testing.assert_close(model.weight, before)
