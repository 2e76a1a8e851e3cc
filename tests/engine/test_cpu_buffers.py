"""Memory that the CPU engine keeps: what comes back, what is freed, and that nobody shares it."""

import gc
import os
import threading

import numpy as np
import pytest
import torch

import fourward as fw
from fourward import FourWard, generate
from fourward.engine._cpu import buffers
from fourward.engine._cpu.buffers import BUFFERS, SMALL, Buffers

LIKE = torch.empty(0)
PLAN = torch.zeros(3, dtype=torch.int32)


def test_a_tensor_gives_its_memory_to_the_next():
    memory = Buffers()
    first = memory.empty(SMALL, LIKE, PLAN)
    address = first.data_ptr()
    assert address % 64 == 0
    second = memory.empty(SMALL, LIKE, PLAN)
    assert second.data_ptr() != address, "it is in use"
    view = first[10:]
    del first
    assert memory.unused_bytes == 0, "a view keeps it"
    del view
    assert memory.unused_bytes >= 4 * SMALL
    assert memory.empty(SMALL - 5, LIKE, PLAN).data_ptr() == address


def test_small_tensors_are_torchs():
    memory = Buffers()
    tensor = memory.empty(SMALL // 4 - 1, LIKE, PLAN)
    del tensor
    assert memory.unused_bytes == 0


def test_at_most_the_limit_is_kept():
    memory = Buffers(limit=10 * SMALL)
    blocks = [memory.take(4 * SMALL, PLAN) for _ in range(5)]
    small = memory.take(SMALL, PLAN)
    memory.give_back(small)
    for block in blocks:
        memory.give_back(block)
    assert memory.unused_bytes <= 10 * SMALL
    assert memory.take(4 * SMALL, PLAN) is blocks[-1], "the latest stays"
    memory.release()
    assert memory.unused_bytes == 0


def test_memory_goes_with_the_network():
    gc.collect()
    BUFFERS.release()
    nets = [FourWard(generate.erdos_renyi(nodes, 0.001, seed=0), seed=0) for nodes in (3000, 6000)]
    for net in nets:
        net(torch.ones(200, net.dag.num_inputs)).sum().backward()
    before = BUFFERS.unused_bytes
    assert before > 2 * SMALL
    nets.pop()
    del net
    gc.collect()
    assert 0 < BUFFERS.unused_bytes < before
    fw.engine.empty_cache()
    assert BUFFERS.unused_bytes == 0
    nets[0](torch.ones(200, nets[0].dag.num_inputs)).sum().backward()


def test_passes_in_flight_have_memory_of_their_own():
    dag = generate.erdos_renyi(3000, 0.001, seed=0)
    net, xs = FourWard(dag, activation="tanh", seed=0), [torch.randn(200, dag.num_inputs) for _ in range(3)]
    want = []
    for x in xs:
        net.zero_grad()
        net(x).square().sum().backward()
        want.append(net.weight.grad.clone())
    losses = [net(x).square().sum() for x in xs]  # three passes wait for their backward passes
    for loss, expected in zip(reversed(losses), reversed(want), strict=True):
        net.zero_grad()
        loss.backward()
        assert torch.equal(net.weight.grad, expected)


def test_a_gradient_that_is_kept_is_not_overwritten():
    dag = generate.erdos_renyi(3000, 0.1, seed=0)
    net, x = FourWard(dag, seed=0), torch.randn(20, dag.num_inputs)
    assert dag.num_edges * 4 > SMALL
    net(x).sum().backward()
    memory, copy = net.weight.grad, net.weight.grad.clone()
    for _ in range(3):
        net.zero_grad()
        net(x * 2).sum().backward()
    assert torch.equal(memory, copy)


def test_threads_share_no_block():
    memory, seen, errors = Buffers(), threading.Barrier(4), []

    def work(number):
        seen.wait()
        for _ in range(300):
            block = memory.take(5000, PLAN)
            block.array[:] = number
            if not (block.array == number).all():
                errors.append(number)
            memory.give_back(block)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_writes_to_pages_of_its_own():
    memory = Buffers()
    block = memory.take(5000, PLAN)
    block.array[:] = 1
    memory.give_back(block)
    child = os.fork()
    if child == 0:
        memory.take(5000, PLAN).array[:] = 2
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (memory.take(5000, PLAN).array == 1).all()


def test_sizes_are_rounded_to_few():
    sizes = {buffers._round_up(size) for size in range(1, 10**6, 997)}
    assert len(sizes) < 220
    assert all(size <= buffers._round_up(size) <= size + max(4096, size / 32) for size in range(1, 10**6, 997))
    assert buffers._round_up(0) >= 0
    assert isinstance(Buffers().take(0, PLAN).address, int | np.integer)


def test_what_outlives_its_network_is_not_kept():
    gc.collect()
    BUFFERS.release()
    net = FourWard(generate.erdos_renyi(3000, 0.01, seed=0), seed=0)
    loss = net(torch.ones(256, net.dag.num_inputs)).sum()
    with torch.no_grad():
        net(torch.ones(256, net.dag.num_inputs))
    del net
    gc.collect()
    del loss
    gc.collect()
    assert BUFFERS.unused_bytes == 0


def test_a_collection_within_take_hands_out_no_block_twice():
    memory = Buffers()

    class Collecting(dict):
        def __getitem__(self, size):
            blocks = super().__getitem__(size)
            memory.release(12345)  # what a finalizer would do
            return blocks

    block = memory.take(SMALL, PLAN)
    memory.give_back(block)
    memory._unused = Collecting(memory._unused)
    assert memory.take(SMALL, PLAN) is block
    assert memory.take(SMALL, PLAN) is not block


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_that_another_thread_holds_does_not_stop_a_child():
    taken, done = threading.Event(), threading.Event()

    def hold():
        with BUFFERS._lock:
            taken.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        BUFFERS.give_back(BUFFERS.take(2 * SMALL, PLAN))
        os._exit(0)
    done.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
