"""Threads and processes of the CPU engine: who runs, and that the bits stay the same."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from fourward import FourWard, generate
from fourward.engine._cpu import threads
from tests.engine.cpu import x_for
from tests.tolerance import assert_near


def test_the_caller_works_alone_after_a_team_that_wasted_time(monkeypatch, two_threads):
    now, calls = [100.0], []

    def team(entry, address, num_threads, flags):
        calls.append("team")
        first_end = threads.ctypes.c_double.from_address(address + 8 * threads.FIRST_END)
        first_end.value = now[0] + 0.1  # the caller needed a tenth of a second,
        now[0] += 0.4  # and waited for three

    monkeypatch.setattr(threads, "perf_counter", lambda: now[0])
    monkeypatch.setattr(threads, "_gomp", lambda: threads.Gomp(team, 1))
    monkeypatch.setattr(threads, "_callable", lambda entry: lambda address: calls.append("alone"))
    for name in ("_alone_until", "_debt", "_debt_at"):
        monkeypatch.setattr(threads, name, 0.0)
    monkeypatch.setattr(threads, "CREDIT", 0.3)
    monkeypatch.setattr(threads, "_forked", False)
    buffer = threads.array("q", [0] * 10)
    for _ in range(4):  # each wastes two of the three tenths: alone, it would have taken two
        threads.run(0, buffer, 2, 2)
    assert calls == ["team", "team", "alone", "alone"]  # four tenths, less what the second team's time pays for
    rest = threads.REST * (0.4 - 0.04 - 0.3)
    now[0] += rest - 0.1
    threads.run(0, buffer, 2, 2)
    now[0] += 0.2
    threads.run(0, buffer, 2, 2)
    assert calls == ["team", "team", "alone", "alone", "alone", "team"]


def test_a_thread_that_has_not_started_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(threads, "_gomp", lambda: None)
    monkeypatch.setattr(threads, "_alone_until", 0.0)
    release = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait)  # the only thread is busy
        monkeypatch.setattr(threads, "_executor", lambda: pool)
        monkeypatch.setattr(threads, "_callable", lambda entry: lambda address: None)
        threads.run(0, threads.array("q", [0] * 10), 2, 2)
        release.set()


def bits(net, x):
    net.zero_grad()
    out = net(x)
    out.square().sum().backward()
    return out.detach().clone(), net.weight.grad.clone(), net.bias.grad.clone()


def test_same_bits_each_time(two_threads):
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    net, x = FourWard(dag, seed=0), x_for(dag, 300)
    first = bits(net, x)
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(bits(net, x), first, strict=True))


@pytest.mark.parametrize("openmp", [True, False], ids=["torch's team", "executor"])
def test_eight_python_threads_at_once(openmp, two_threads, monkeypatch):
    if not openmp:
        monkeypatch.setattr(threads, "_gomp", lambda: None)
    dag = generate.erdos_renyi(200, 0.3, seed=0)
    nets = [FourWard(dag, seed=s) for s in range(8)]
    x = x_for(dag, 256)
    want = [bits(net, x) for net in nets]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for got, expected in zip(pool.map(lambda net: bits(net, x), nets), want, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def child(queue):
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    torch.set_num_threads(2)
    net = FourWard(dag, seed=0)
    with torch.no_grad():
        queue.put(net(x_for(dag, 256)).numpy())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn of forks beside threads
def test_worker_processes_after_use(method, two_threads):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    net = FourWard(dag, seed=0)
    with torch.no_grad():
        want = net(x_for(dag, 256)).numpy()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    worker = context.Process(target=child, args=(queue,))
    worker.start()
    try:
        assert np.array_equal(queue.get(timeout=120), want)
    finally:
        worker.join(30)
        worker.kill()
    assert worker.exitcode == 0


def test_threads_follow_torch(monkeypatch):
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    net, seen, run = FourWard(dag, seed=0), [], threads.run

    def record(entry, block, jobs, num_threads):
        seen.append(num_threads)
        run(entry, block, jobs, num_threads)

    monkeypatch.setattr(threads, "run", record)
    before = torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        net(x_for(dag, 256))
    torch.set_num_threads(before)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(("forward_threads", "backward_threads"), [(2, 1), (1, 2), (1, 8), (8, 1)])
@pytest.mark.parametrize("compiled", [False, True])
def test_threads_may_change_before_the_backward_pass(forward_threads, backward_threads, compiled):
    torch._dynamo.reset()
    dag = generate.erdos_renyi(128, 0.5, seed=0)
    net, twin = FourWard(dag, seed=0), FourWard(dag, seed=0, engine="torch")
    call = torch.compile(net, backend="aot_eager", fullgraph=True) if compiled else net
    before = torch.get_num_threads()
    torch.set_num_threads(forward_threads)
    loss = call(x_for(dag, 128)).square().sum()
    torch.set_num_threads(backward_threads)
    loss.backward()
    torch.set_num_threads(before)
    twin(x_for(dag, 128)).square().sum().backward()
    assert_near(net.weight.grad, twin.weight.grad)


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path):
    """A file where the folder would have to be: not even root can write there."""
    blocker = tmp_path / "blocked"
    blocker.write_text("a file, where a folder would have to be")
    code = (
        "import torch, fourward as fw; net = fw.FourWard(fw.generate.chain(3), seed=0); print(net(torch.ones(1)).shape)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(blocker / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1])" in done.stdout
