// CUDA's threads on a CPU, for tests of kernels where there is no GPU: blocks run one after another, and the threads of a
// block are fibers that run until they wait. What a kernel forgets to wait for is seen as a wrong result: fibers run in
// both orders, asynchronous copies arrive no sooner than they are waited for, and shared memory starts as NaN.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <ucontext.h>
#include <vector>

using namespace std;

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)

struct Index { int x; };
static Index threadIdx, blockIdx, blockDim, gridDim;
alignas(16) char shared[1 << 18];

namespace emulation {
enum State { READY, AT_WARP_BARRIER, AT_BLOCK_BARRIER, DONE };
struct Copy { void *to; const void *from; };
struct Fiber {
    ucontext_t context;
    State state = READY;
    unique_ptr<char[]> stack{new char[1 << 16]};
    deque<vector<Copy>> groups;
    vector<Copy> open_group;
};
static vector<Fiber> fibers;
static ucontext_t scheduler;
static void (*kernel)(void **);
static void **arguments;

static Fiber &current() { return fibers[threadIdx.x]; }

static void wait(State state) {
    Fiber &fiber = current();
    fiber.state = state;
    swapcontext(&fiber.context, &scheduler);
}

static void start() {
    kernel(arguments);
    wait(DONE);
}

// Let all fibers of [first, last) go on if each of them waits at this barrier, or is done.
static void release(size_t first, size_t last, State state) {
    for (size_t i = first; i < last; ++i)
        if (fibers[i].state != state && fibers[i].state != DONE) return;
    for (size_t i = first; i < last; ++i)
        if (fibers[i].state == state) fibers[i].state = READY;
}

static bool run_block() {
    memset(shared, 0xFF, sizeof shared);
    const size_t n = fibers.size();
    for (Fiber &fiber : fibers) {
        fiber.state = READY;
        fiber.groups.clear();
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = 1 << 16;
        makecontext(&fiber.context, start, 0);
    }
    for (bool backwards = false;; backwards = !backwards) {
        bool waits = true, done = true;
        for (size_t i = 0; i < n; ++i) {
            threadIdx.x = (int)(backwards ? n - 1 - i : i);
            if (current().state != READY) continue;
            waits = false;
            swapcontext(&scheduler, &current().context);
        }
        for (size_t i = 0; i < n; i += 32) release(i, min(i + 32, n), AT_WARP_BARRIER);
        release(0, n, AT_BLOCK_BARRIER);
        for (Fiber &fiber : fibers) done = done && fiber.state == DONE;
        if (done || waits) return done;
    }
}

static int run(void (*function)(void **), int blocks, int threads, void **values) {
    kernel = function, arguments = values;
    blockDim.x = threads, gridDim.x = blocks;
    fibers.clear();
    fibers.resize(threads);
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        if (!run_block()) return 1; // threads that wait for each other for ever
    return 0;
}

template <typename... P, size_t... I> static void call(void (*f)(P...), void **values, index_sequence<I...>) {
    f(*(P *)values[I]...);
}
template <typename... P> static void call(void (*f)(P...), void **values) {
    call(f, values, index_sequence_for<P...>());
}
} // namespace emulation

// An entry point with the arguments of a launch: 0, or 1 if threads wait for each other for ever.
#define EMULATED_ENTRY(kernel)                                                                                          \
    extern "C" int emulate_##kernel(int blocks, int threads, void **values) {                                           \
        return emulation::run([](void **v) { emulation::call(kernel, v); }, blocks, threads, values);                   \
    }

static void __syncthreads() { emulation::wait(emulation::AT_BLOCK_BARRIER); }
static void __syncwarp() { emulation::wait(emulation::AT_WARP_BARRIER); }

static void copy_async(void *shared, const void *global) { emulation::current().open_group.push_back({shared, global}); }
static void end_group() {
    auto &fiber = emulation::current();
    fiber.groups.push_back(move(fiber.open_group));
    fiber.open_group.clear();
}
template <int PENDING> static void wait_group() {
    auto &groups = emulation::current().groups;
    for (; groups.size() > PENDING; groups.pop_front())
        for (const auto &copy : groups.front()) memcpy(copy.to, copy.from, 16);
}

static float bits_to_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static double bits_to_double(long long bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

// Half precision, rounded to the nearest, ties to even.
static unsigned short float_to_half(float x) {
    const unsigned short sign = signbit(x) ? 0x8000 : 0;
    x = fabs(x);
    if (isnan(x)) return 0x7E00;
    if (x >= 65520) return sign | 0x7C00;
    const int exponent = x < 6.103515625e-5f ? -14 : ilogb(x);
    return sign | (unsigned short)(nearbyint(ldexp(x, 10 - exponent)) + (exponent + 14) * 1024);
}
static float half_to_float(unsigned short bits) {
    const int exponent = bits >> 10 & 31, digits = bits & 1023;
    const float sign = bits >> 15 ? -1.f : 1.f;
    if (exponent == 31) return digits ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024.f + digits, exponent - 25) : ldexp((float)digits, -24));
}
static unsigned short float_to_bfloat16(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    if (isnan(x)) return 0x7FC0;
    return (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
