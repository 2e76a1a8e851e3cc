// Fused levels: one thread block computes a run of narrow levels, for LANES samples, with activations in shared memory.
//
// A level costs what its longest chain of instructions takes, about 0.1 microseconds, where a launch costs 2. Blocks never
// wait for each other. A row of LANES activations lives in a slot of shared memory from its level to that of its last
// reader (`fused_schedule`), so that all gathers are reads of shared memory. What a warp has to do is a stream that it
// copies ahead of itself into rings: per round a header for each of its GROUPS neurons, then lines of edges, K for each.
//
// Macros: X, W, A are the types of activations, weights and sums; K, WARPS, LANES; HAS_DROPOUT, SAVE_Z;
// ACTIVATE(code, z) and ACTIVATION_BACKWARD(code, z, a, grad) from the table of activations.

#ifdef EMULATED
#include "emulated_cuda.h"
#endif

typedef long long i64;
typedef unsigned int u32;

// ---------------------------------------------------------------------------------------------------- conversions

__device__ __forceinline__ float to_sum(float x) { return x; }
__device__ __forceinline__ double to_sum(double x) { return x; }
__device__ __forceinline__ void put(float *at, float x) { *at = x; }
__device__ __forceinline__ void put(double *at, double x) { *at = x; }

struct half_t { unsigned short bits; };
struct bfloat16_t { unsigned short bits; };
#ifndef EMULATED
__device__ __forceinline__ float to_sum(half_t x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ void put(half_t *at, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(at->bits) : "f"(x));
}
__device__ __forceinline__ void put(bfloat16_t *at, float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(at->bits) : "f"(x));
}
__device__ __forceinline__ float bits_to_float(u32 bits) { return __uint_as_float(bits); }
__device__ __forceinline__ double bits_to_double(i64 bits) { return __longlong_as_double(bits); }

// Copies of 16 bytes to shared memory that don't wait: groups of them, in order, are waited for.
__device__ __forceinline__ void copy_async(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(global)
                 : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
// A pointer that was loaded from memory: the compiler can't know that it is one to global memory.
template <typename T> __device__ __forceinline__ T *global(T *at) {
    __builtin_assume(__isGlobal(at));
    return at;
}
#else
template <typename T> T *global(T *at) { return at; }
float to_sum(half_t x) { return half_to_float(x.bits); }
void put(half_t *at, float x) { at->bits = float_to_half(x); }
void put(bfloat16_t *at, float x) { at->bits = float_to_bfloat16(x); }
#endif
__device__ __forceinline__ A where(bool condition, A x, A y) { return condition ? x : y; } // in formulas of the table
__device__ __forceinline__ float to_sum(bfloat16_t x) { return bits_to_float((u32)x.bits << 16); }

// ---------------------------------------------------------------------------------------------------- the streams

struct alignas(16) Header {
    int iterations; // lines of edges of this round, the same for all neurons of a warp; and the flags
    int slot;       // byte offset of the slot that receives the result; -1: none
    int row;        // row of the node in `saved`; -1: nothing to do
    int code;       // its activation
    int bias[2];    // the index of its bias; once filled, the bias itself
    int column;     // once filled, its column of the result; -1: none
    int node;       // what dropout draws by
};
enum { UNIT_WEIGHT = -2 }; // instead of an edge in plan_lines: a part of a sum, whose weight is 1
enum { ITERATIONS = (1 << 20) - 1, BARRIER = 1 << 20, COPY = 1 << 21, HIDDEN = 1 << 22, PARTIAL = 1 << 23 };

enum {
    GROUPS = 32 / LANES,                               // neurons that a warp computes at once
    LINE_EDGES = GROUPS * K,                           // of one line: K of each neuron of a warp
    LINE_BYTES = LINE_EDGES * (4 + (int)sizeof(A)),    // slots, then weights
    CHUNK_LINES = LINE_EDGES >= 32 ? 2 : 64 / LINE_EDGES,
    CHUNK_BYTES = CHUNK_LINES * LINE_BYTES,
    CHUNKS = 8,                                        // of a ring of lines
    AHEAD = 4,                                         // rounds whose headers, and what they load, are in registers
    HEADER_BYTES = GROUPS * (int)sizeof(Header),       // of one round
    HEADER_CHUNK = AHEAD * HEADER_BYTES,
    HEADER_CHUNKS = 4,
    RING_BYTES = CHUNKS * CHUNK_BYTES + HEADER_CHUNKS * HEADER_CHUNK, // of a warp
};
static_assert((int)RING_BYTES == EXPECTED_RING_BYTES, "BlockShape.ring_bytes");

// Replaces indices by values: weights (0 for padding) and biases (unless bias_slot is -1). `plan_*` are parts of the
// packed plan.
extern "C" __global__ void fill_streams(const i64 *table, int weight_slot, int bias_slot, int scratch_slot,
                                        const int *row_columns, const int *plan_headers, const int *plan_lines,
                                        i64 headers, i64 lines) {
    const W *weight = (const W *)table[2 + weight_slot];
    char *scratch = (char *)table[2 + scratch_slot];
    const i64 stride = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (i64 i = first; i < headers; i += stride) {
        Header h = ((const Header *)plan_headers)[i];
        A bias = 0;
        if (bias_slot >= 0 && h.bias[0] >= 0) bias = to_sum(((const W *)table[2 + bias_slot])[h.bias[0]]);
        *(A *)h.bias = bias;
        h.column = h.row < 0 ? -1 : row_columns[h.row];
        if (h.slot > 0) h.slot *= (int)sizeof(A) / 4;
        ((Header *)scratch)[i] = h;
    }
    char *out = scratch + headers * (i64)sizeof(Header);
    for (i64 i = first; i < lines * LINE_EDGES; i += stride) {
        const i64 line = i / LINE_EDGES;
        const int j = (int)(i % LINE_EDGES);
        const int *in = plan_lines + line * 2 * LINE_EDGES;
        const int edge = in[LINE_EDGES + j];
        char *at = out + line * LINE_BYTES;
        ((int *)at)[j] = in[j] * ((int)sizeof(A) / 4);
        ((A *)(at + LINE_EDGES * 4))[j] = edge >= 0 ? (A)to_sum(weight[edge]) : edge == UNIT_WEIGHT ? (A)1 : (A)0;
    }
}

// Consecutive numbers of shared memory, as wide as its words are read at once.
template <int COUNT, typename T> __device__ __forceinline__ void read_vector(T *to, const T *from) {
    enum { WIDTH = COUNT * sizeof(T) % 16 == 0 ? 16 : 8, PARTS = COUNT * sizeof(T) / WIDTH };
    struct alignas(WIDTH) Word { T values[WIDTH / sizeof(T)]; };
    #pragma unroll
    for (int i = 0; i < PARTS; ++i) {
        const Word word = ((const Word *)from)[i];
        #pragma unroll
        for (int j = 0; j < WIDTH / (int)sizeof(T); ++j) to[i * (WIDTH / (int)sizeof(T)) + j] = word.values[j];
    }
}

// What a warp reads: headers by round, and lines of edges, both through rings in shared memory.
struct Stream {
    char *ring;          // CHUNKS of lines, then HEADER_CHUNKS of headers
    const char *headers; // of this warp, in global memory
    const char *lines;
    int lane;
    u32 line;            // the next one to be read
    int slots[K];        // of the neuron of this lane: the line that was read last
    A weights[K];

    __device__ __forceinline__ void request_lines(u32 chunk) {
        copy_ahead<CHUNK_BYTES>(ring + chunk % (u32)CHUNKS * CHUNK_BYTES, lines + (i64)chunk * CHUNK_BYTES);
    }

    __device__ __forceinline__ void request_headers(u32 chunk) {
        char *to = ring + CHUNKS * CHUNK_BYTES + chunk % (u32)HEADER_CHUNKS * HEADER_CHUNK;
        copy_ahead<HEADER_CHUNK>(to, headers + (i64)chunk * HEADER_CHUNK);
    }

    template <int BYTES> __device__ __forceinline__ void copy_ahead(char *to, const char *from) {
        #pragma unroll
        for (int i = 0; i < BYTES; i += 512)
            if (i + 512 <= BYTES || i + lane * 16 < BYTES) copy_async(to + i + lane * 16, from + i + lane * 16);
        end_group();
    }

    // At the first line of chunk c. All lanes have read chunk c - 2, whose place chunk c + CHUNKS - 2 takes: they met at
    // the barrier of chunk c - 1. At least CHUNKS - 2 groups were requested after chunk c, so all but that many are
    // waited for.
    __device__ __forceinline__ void read_line() {
        if (line % (u32)CHUNK_LINES == 0) {
            request_lines(line / (u32)CHUNK_LINES + CHUNKS - 2);
            wait_group<CHUNKS - 2>();
            __syncwarp();
        }
        const char *at = ring + line % (u32)(CHUNKS * CHUNK_LINES) * LINE_BYTES;
        const int group = lane / LANES;
        read_vector<K>(slots, (const int *)at + group * K);
        read_vector<K>(weights, (const A *)(at + LINE_EDGES * 4) + group * K);
        ++line;
    }

    __device__ __forceinline__ Header read_header(u32 round) {
        const u32 place = round % (u32)(AHEAD * HEADER_CHUNKS);
        const char *at = ring + CHUNKS * CHUNK_BYTES + place * HEADER_BYTES;
        return ((const Header *)at)[lane / LANES];
    }

    // Before the rounds 4 c to 4 c + 3, while which the headers of chunk c + 1 are read. Those of chunk c are in
    // registers. All lanes have read chunk c - 1, whose place chunk c + HEADER_CHUNKS - 1 takes.
    __device__ __forceinline__ void next_headers(u32 round) {
        request_headers(round / (u32)AHEAD + HEADER_CHUNKS - 1);
        wait_group<HEADER_CHUNKS - 2>();
        __syncwarp();
    }

    __device__ __forceinline__ void begin() {
        for (u32 c = 0; c < CHUNKS - 2; ++c) request_lines(c);
        for (u32 c = 0; c < HEADER_CHUNKS - 1; ++c) request_headers(c);
        wait_group<0>();
        __syncwarp();
        line = 0;
        read_line();
    }

    // The sum over the edges of a round, for the neuron and the sample of this lane.
    __device__ __forceinline__ A gather(const char *mine, int iterations, A total) {
        #pragma unroll 1
        for (int i = 0; i < iterations; ++i) {
            A values[K], w[K];
            #pragma unroll
            for (int k = 0; k < K; ++k) values[k] = *(const A *)(mine + slots[k]);
            #pragma unroll
            for (int k = 0; k < K; ++k) w[k] = weights[k];
            read_line(); // of the next iteration or round, ahead of its use
            #pragma unroll
            for (int k = 0; k < K; ++k) total += w[k] * values[k];
        }
        return total;
    }
};

// ---------------------------------------------------------------------------------------------------- dropout

// `hash32` of engine/_dropout.py; unsigned 32-bit arithmetic wraps as its masks do.
__device__ __forceinline__ u32 hash32(u32 x) {
    x = (x ^ (x >> 16)) * 0x21F0AAADu;
    x = (x ^ (x >> 15)) * 0x735A2D97u;
    return x ^ (x >> 15);
}

__device__ __forceinline__ A dropout_scale(const Header &h, const i64 *key, int sample, i64 threshold, i64 p_bits) {
    if (!(h.iterations & HIDDEN)) return 1;
    const u32 draw = hash32(hash32((u32)h.node * NODE_FACTOR + (u32)*key) * SAMPLE_FACTOR + (u32)sample);
    return (i64)draw >= threshold ? (A)(1 / (1 - bits_to_double(p_bits))) : (A)0;
}

// ---------------------------------------------------------------------------------------------------- the runs

// Block i has the samples i * LANES to i * LANES + LANES - 1, a part of a slice of BLOCK_B. Shared memory: slots, of which
// slot 0 is always 0 and read by padding, then the rings. `warp_lines` (WARPS) are the first lines of the warps.
#define PROLOGUE                                                                                                        \
    extern __shared__ __align__(16) char shared[];                                                                      \
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;                                                         \
    const int sample = blockIdx.x * LANES + lane % LANES, slice = blockIdx.x * LANES / BLOCK_B;                         \
    const i64 size = (i64)rows * BLOCK_B, offset = slice * size + sample % BLOCK_B;                                     \
    char *mine = shared + lane % LANES * sizeof(A);                                                                     \
    if (threadIdx.x < LANES) *(A *)mine = 0;                                                                            \
    Stream stream;                                                                                                      \
    stream.lane = lane;                                                                                                 \
    stream.ring = shared + slot_bytes + warp * RING_BYTES;                                                              \
    const char *scratch = (const char *)table[2 + scratch_slot];                                                        \
    stream.headers = scratch + (first_header + (i64)warp * rounds * GROUPS) * sizeof(Header);                           \
    stream.lines = scratch + headers * sizeof(Header) + (first_line + warp_lines[warp]) * LINE_BYTES;                   \
    stream.begin();                                                                                                     \
    __syncthreads();

extern "C" __global__ void __launch_bounds__(WARPS * 32)
fused_forward(const i64 *table, int saved_slot, int key_slot, int scratch_slot, const int *warp_lines, i64 headers,
             i64 first_header, i64 first_line, int rounds, int slot_bytes, i64 rows, int slices, i64 threshold,
             i64 p_bits) {
    PROLOGUE
    X *values = global((X *)table[2 + saved_slot] + offset), *z_values = values + slices * size;
    const i64 *key = (const i64 *)table[2 + key_slot];
    Header ahead[AHEAD];
    A loaded[AHEAD];
    #pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
        ahead[j] = stream.read_header(j);
        loaded[j] = ahead[j].iterations & COPY ? (A)to_sum(values[(i64)ahead[j].row * BLOCK_B]) : (A)0;
    }
    for (int round = 0; round < rounds; round += AHEAD) {
        stream.next_headers(round);
        #pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            // Invariant: all levels before that of this round are in their slots, visible to all threads.
            const Header h = ahead[j];
            A a = loaded[j];
            ahead[j] = stream.read_header(round + j + AHEAD);
            if (round + j + AHEAD < rounds && ahead[j].iterations & COPY) loaded[j] = to_sum(values[(i64)ahead[j].row * BLOCK_B]);
            const A z = stream.gather(mine, h.iterations & ITERATIONS, *(const A *)h.bias);
            if (h.row >= 0 && !(h.iterations & COPY)) {
                a = ACTIVATE(h.code, z);
                if (HAS_DROPOUT) a *= dropout_scale(h, key, sample, threshold, p_bits);
                put(values + (i64)h.row * BLOCK_B, a);
                if (SAVE_Z) put(z_values + (i64)h.row * BLOCK_B, z);
            }
            if (h.iterations & PARTIAL) a = z;
            if (h.slot >= 0) *(A *)(mine + h.slot) = a;
            if (h.iterations & BARRIER) __syncthreads();
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
fused_backward(const i64 *table, int saved_slot, int key_slot, int scratch_slot, int deltas_slot, int out_grad_slot,
              const int *warp_lines, i64 headers, i64 first_header, i64 first_line, int rounds, int slot_bytes, i64 rows,
              int slices, i64 threshold, i64 p_bits, int B, int columns) {
    PROLOGUE
    const X *values = global((const X *)table[2 + saved_slot] + offset), *z_values = values + slices * size;
    A *deltas = global((A *)table[2 + deltas_slot] + offset);
    const X *out_grad = global((const X *)table[2 + out_grad_slot] + (i64)sample * columns);
    const i64 *key = (const i64 *)table[2 + key_slot];
    Header ahead[AHEAD];
    A loaded[AHEAD], loaded_z[AHEAD], loaded_grad[AHEAD];
#define LOAD(j)                                                                                                         \
    {                                                                                                                   \
        const Header &n = ahead[j];                                                                                     \
        loaded[j] = loaded_z[j] = loaded_grad[j] = 0;                                                                   \
        if (n.iterations & COPY) {                                                                                      \
            loaded[j] = deltas[(i64)n.row * BLOCK_B];                                                                   \
        } else if (n.row >= 0) {                                                                                        \
            loaded[j] = to_sum(values[(i64)n.row * BLOCK_B]);                                                           \
            if (SAVE_Z) loaded_z[j] = to_sum(z_values[(i64)n.row * BLOCK_B]);                                           \
            if (n.column >= 0 && sample < B) loaded_grad[j] = to_sum(out_grad[n.column]);                               \
        }                                                                                                               \
    }
    #pragma unroll
    for (int j = 0; j < AHEAD; ++j) {
        ahead[j] = stream.read_header(j);
        LOAD(j)
    }
    for (int round = 0; round < rounds; round += AHEAD) {
        stream.next_headers(round);
        #pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            // Invariant: the deltas of all levels after that of this round are in their slots, visible to all threads.
            const Header h = ahead[j];
            A d = loaded[j], a = d, z = SAVE_Z ? loaded_z[j] : d;
            const A grad = loaded_grad[j];
            ahead[j] = stream.read_header(round + j + AHEAD);
            if (round + j + AHEAD < rounds) LOAD(j)
            A s = stream.gather(mine, h.iterations & ITERATIONS, (A)0) + grad;
            if (h.row >= 0 && !(h.iterations & COPY)) {
                if (HAS_DROPOUT) {
                    // Stored is scale * f(z): the derivative needs f(z). Where scale is 0, so is the result.
                    const A scale = dropout_scale(h, key, sample, threshold, p_bits);
                    a = a / (scale == 0 ? (A)1 : scale);
                    s *= scale;
                }
                d = ACTIVATION_BACKWARD(h.code, z, a, s);
                deltas[(i64)h.row * BLOCK_B] = d;
            }
            if (h.iterations & PARTIAL) d = s;
            if (h.slot >= 0) *(A *)(mine + h.slot) = d;
            if (h.iterations & BARRIER) __syncthreads();
        }
    }
}

#ifdef EMULATED
EMULATED_ENTRY(fill_streams)
EMULATED_ENTRY(fused_forward)
EMULATED_ENTRY(fused_backward)
#endif
