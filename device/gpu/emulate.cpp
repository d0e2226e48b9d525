/* device/gpu/emulate.cpp - see emulate.h. The threads of a launch are stacks that take turns on the caller's
 * thread. A block starts when those before it have ended, or when they all wait for what it has to say. */
#include <functional>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unordered_map>

#include "device/gpu/emulate.cuh"      /* after the others: it takes words of the language away */
#include "device/gpu/matrix.cuh"

enum { LANES = 32, STACK = 256 << 10, UNITS = 5, THREADS_MOST = 1024, SHARED_MOST = 227 << 10,
       SHARED_USUAL = 48 << 10, SHARED_ALIGN = 1024 };
static const size_t memory_total = (size_t)2 << 30;

struct fiber : emulated_thread {
    void *context[5];
    ucontext_t start;
    size_t nth_warp;
    bool started, done;
};
struct running : emulated_block {
    std::vector<fiber *> threads;
    std::vector<emulated_warp> warps;
    std::vector<int> turn;      /* lane of each warp that ran last */
    std::vector<uint8_t> room;  /* of shared memory */
};
struct kernel {
    emulated_call call;
    size_t bytes, shared;       /* of the first argument; most that a launch may ask for */
};
struct launched {
    const void *kernel;
    emulated_dim grid, block;
    size_t shared;
    std::vector<uint64_t> args; /* copied, when captured */
};
struct emulated_graph {
    std::vector<launched> launches;
};
struct emulated_event {
    double seconds;
    int on_its_way;
};

emulated_thread *emulated_now;
emulated_dim blockDim, gridDim;
static std::unordered_map<const void *, kernel> kernels;
static std::unordered_map<void *, size_t> sizes;
static size_t in_use;
static emulated_graph *capturing;

/* What the stream has still to do: as late as it may happen, so that tests see who forgot to wait. */
static std::vector<std::function<void()>> &queued = *new std::vector<std::function<void()>>();
static void drain()
{
    std::vector<std::function<void()>> now;
    now.swap(queued);
    for (auto &f : now) f();
}
static bool is_pageable(const void *p)
{
    for (auto &s : sizes)
        if (p >= s.first && (const char *)p < (const char *)s.first + s.second) return false;
    return true;
}

/* The launch at work. */
static const launched *work;
static void **work_args;
static emulated_call work_call;
static unsigned n_started;      /* of its blocks */
static std::vector<std::unique_ptr<running>> blocks, spare;
static std::vector<fiber *> &resting = *new std::vector<fiber *>();        /* kept to the end */
static void *outside[5];
static unsigned idle;           /* turns in a row that only waited */
static bool backwards;          /* lanes take turns from the last to the first: in every other launch */

void emulated_stop(const char *why)
{
    fprintf(stderr, "emulated GPU: %s\n", why);
    abort();
}

/* ---- turns ------------------------------------------------------------------------------------------------ */
/* The compiler's own jumps between stacks: some nanoseconds. Neither function may leave its frame before it jumps:
 * the frame is what the thread comes back to. */
#define PLAIN __attribute__((noinline, no_sanitize("address", "undefined")))
PLAIN __attribute__((noreturn)) static void jump(void **to)
{
    __builtin_longjmp(to, 1);
}
PLAIN static void swap(void **from, fiber *to)
{
    if (__builtin_setjmp(from)) return;
    emulated_now = to;
    if (!to) jump(outside);
    if (to->started) jump(to->context);
    to->started = true;
    setcontext(&to->start);
    emulated_stop("a thread cannot start");
}

static void finish();
static void body()
{
    for (;;) {
        work_call(work->kernel, work_args);
        finish();
    }
}

static fiber *new_fiber()
{
    fiber *f = new fiber();
    getcontext(&f->start);
    f->start.uc_stack.ss_size = STACK;
    f->start.uc_stack.ss_sp = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f->start.uc_stack.ss_sp == MAP_FAILED) emulated_stop("out of memory for the stack of a thread");
    makecontext(&f->start, body, 0);
    return f;
}

static running *start_block()
{
    static const unsigned never = 0;
    std::unique_ptr<running> b(spare.empty() ? new running() : spare.back().release());
    if (!spare.empty()) spare.pop_back();
    const unsigned n = work->block.x, i = n_started++;
    b->index = { i % work->grid.x, i / work->grid.x % work->grid.y, i / work->grid.x / work->grid.y };
    b->live = (int)n;
    memset(b->barrier, 0, sizeof b->barrier);
    b->room.assign(work->shared + SHARED_ALIGN, 0xff);
    b->shared = (uint8_t *)(((uintptr_t)b->room.data() + SHARED_ALIGN - 1) & ~(uintptr_t)(SHARED_ALIGN - 1));
    b->warps.assign((n + LANES - 1) / LANES, emulated_warp());
    b->turn.assign(b->warps.size(), backwards ? 0 : LANES - 1);
    b->threads.resize(n);
    for (unsigned t = 0; t < n; t++) {
        fiber *f = resting.empty() ? new_fiber() : resting.back();
        if (!resting.empty()) resting.pop_back();
        b->threads[t] = f;
        f->index = { t, 0, 0 };
        f->lane = (int)(t % LANES);
        f->nth_warp = t / LANES;
        f->warp = &b->warps[t / LANES];
        f->warp->live++;
        f->block = b.get();
        f->until = &never, f->phase = 1;
        f->done = false;
        f->copies.clear(), f->groups.clear();
        f->products.clear(), f->product_groups.clear();
    }
    blocks.push_back(std::move(b));
    return blocks.back().get();
}

/* A lane of the warp that can run, after the one that ran last. */
static fiber *ready(running *b, size_t w)
{
    const int n = (int)b->threads.size();
    for (int i = 1, lane = b->turn[w]; i <= LANES; i++) {
        lane = (lane + (backwards ? LANES - 1 : 1)) % LANES;
        const int t = (int)w * LANES + lane;
        if (t >= n) continue;
        fiber *f = b->threads[(size_t)t];
        if (f->done || *f->until == f->phase) continue;
        b->turn[w] = lane;
        return f;
    }
    return nullptr;
}

/* Who runs next: of the own warp if it can, then of the warps after it, in a ring over the blocks. own_last: the
 * own warp is asked after all others. NULL: everybody waits. */
static fiber *next(bool own_last)
{
    const fiber *now = static_cast<fiber *>(emulated_now);
    size_t b = 0, w = now ? now->nth_warp : 0, total = 0;
    for (size_t i = 0; i < blocks.size(); i++) {
        total += blocks[i]->warps.size();
        if (now && blocks[i].get() == now->block) b = i;
    }
    for (size_t i = 0; i <= total; i++) {
        if (fiber *f = i || !own_last ? ready(blocks[b].get(), w) : nullptr) return f;
        if (++w < blocks[b]->warps.size()) continue;
        w = 0;
        b = (b + 1) % blocks.size();
    }
    return nullptr;
}

/* The next turn; the current thread has said what it waits for. */
static void turn(bool paused)
{
    fiber *now = static_cast<fiber *>(emulated_now), *to = nullptr;
    const size_t threads = blocks.size() * work->block.x;
    const bool more = n_started < work->grid.x * work->grid.y * work->grid.z;
    idle = paused ? idle + 1 : 0;
    if (idle <= 4 * threads || !more) to = next(paused);
    if (idle > 1000 * threads) to = nullptr;
    if (!to) {
        if (!more) emulated_stop("the threads of a launch wait for each other for ever");
        idle = 0;
        to = ready(start_block(), 0);
    }
    if (to != now) swap(now->context, to);
}

/* The current thread has ended. */
static void finish()
{
    fiber *now = static_cast<fiber *>(emulated_now);
    emulated_block *b = now->block;
    now->done = true;
    if (--now->warp->live && now->warp->arrived == now->warp->live) emulated_stop("a lane ends while its warp waits for it");
    if (--b->live && b->barrier[0].arrived == b->live) b->barrier[0].arrived = 0, b->barrier[0].phase++;
    if (b->live) return turn(false);
    if (!b->bulk.empty()) emulated_stop("a block ends while copies into it are on their way");
    resting.insert(resting.end(), static_cast<running *>(b)->threads.begin(), static_cast<running *>(b)->threads.end());
    for (size_t i = 0; i < blocks.size(); i++)
        if (blocks[i].get() == b) {
            spare.push_back(std::move(blocks[i]));
            blocks.erase(blocks.begin() + (ptrdiff_t)i);
            break;
        }
    fiber *to = nullptr;
    idle = 0;
    if (!blocks.empty()) {
        emulated_now = nullptr;
        to = next(false);
    }
    if (!to && n_started < work->grid.x * work->grid.y * work->grid.z) to = ready(start_block(), 0);
    if (!to && !blocks.empty()) emulated_stop("the threads of a launch wait for each other for ever");
    if (to != now) swap(now->context, to);
}

void emulated_wait(const unsigned *counter)
{
    emulated_now->until = counter, emulated_now->phase = *counter;
    turn(false);
}
void emulated_pause()
{
    turn(true);
}
void emulated_sync(int barrier, int threads)
{
    auto &b = emulated_now->block->barrier[barrier];
    if (++b.arrived < threads) return emulated_wait(&b.phase);
    b.arrived = 0;
    b.phase++;
}

static void run(const launched *l, void **args)
{
    work = l, work_args = args, work_call = kernels[l->kernel].call;
    blockDim = l->block, gridDim = l->grid;
    n_started = 0, idle = 0;
    backwards = !backwards;
    swap(outside, ready(start_block(), 0));
    emulated_now = nullptr;
}

/* ---- barriers that count bytes: [phase 1][arrivals of a phase 15][arrivals to come 16][bytes to come 32] -------- */
static void settle(uint64_t *bar)
{
    const uint64_t of_phase = *bar >> 48 & 0x7fff;
    if ((uint32_t)*bar == 0 && (*bar >> 32 & 0xffff) == 0) *bar = (~*bar & (uint64_t)1 << 63) | of_phase << 48 | of_phase << 32;
}
void bar_init(uint64_t *bar, int arrivals)
{
    *bar = (uint64_t)arrivals << 48 | (uint64_t)arrivals << 32;
}
void bar_arrive(uint64_t *bar)
{
    if ((*bar >> 32 & 0xffff) == 0) emulated_stop("more arrivals than a barrier counts");
    *bar -= (uint64_t)1 << 32;
    settle(bar);
}
void bar_expect(uint64_t *bar, uint32_t bytes)
{
    *bar = (*bar & ~(uint64_t)UINT32_MAX) | (uint32_t)(*bar + bytes);
    bar_arrive(bar);
}
void bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *bar, bool)
{
    if (bytes % 16 || (uintptr_t)to % 16 || (uintptr_t)from % 16) emulated_stop("a bulk copy that is not aligned to 16 bytes");
    emulated_now->block->bulk.push_back({ to, from, bytes, bar });
}
void bar_wait(uint64_t *bar, uint32_t parity)
{
    while ((*bar >> 63) == parity) {
        auto &bulk = emulated_now->block->bulk;
        bool any = false;
        for (size_t i = 0; i < bulk.size() && (*bar >> 63) == parity;) {
            const emulated_copy c = bulk[i];
            if (c.bar != bar) {
                i++;
                continue;
            }
            bulk.erase(bulk.begin() + (ptrdiff_t)i);
            memcpy(c.to, c.from, c.bytes);
            *bar = (*bar & ~(uint64_t)UINT32_MAX) | (uint32_t)(*bar - c.bytes);
            settle(bar);
            any = true;
        }
        if (!any) emulated_pause();
    }
}
/* The thread's copies become bulk copies that the barrier counts. */
void copy_arrive(uint64_t *bar)
{
    for (emulated_copy &c : emulated_now->copies) {
        *bar = (*bar & ~(uint64_t)UINT32_MAX) | (uint32_t)(*bar + c.bytes);
        c.bar = bar;
        emulated_now->block->bulk.push_back(c);
    }
    emulated_now->copies.clear(), emulated_now->groups.clear();
    bar_arrive(bar);
}
void emulated_copy_wait(size_t newest)
{
    auto &groups = emulated_now->groups;
    auto &copies = emulated_now->copies;
    if (groups.size() <= newest) return;
    const size_t done = groups.size() - newest, n = groups[done - 1];
    for (size_t i = 0; i < n; i++) memcpy(copies[i].to, copies[i].from, copies[i].bytes);
    copies.erase(copies.begin(), copies.begin() + (ptrdiff_t)n);
    groups.erase(groups.begin(), groups.begin() + (ptrdiff_t)done);
    for (size_t &g : groups) g -= n;
}

/* ---- the matrix unit ------------------------------------------------------------------------------------------- */
struct half_table {
    float value[65536];
    half_table()
    {
        for (unsigned i = 0; i < 65536; i++) value[i] = f16_to_f32((uint16_t)i);
    }
};
static const half_table halves;
const float *const emulated_halves = halves.value;

struct fragment {
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};
static float value_of_half(uint32_t bits)
{
    return halves.value[bits & 0xffff];
}
static float value_of_bf16(uint32_t bits)
{
    return bf16_to_f32((uint16_t)bits);
}
template <float value(uint32_t)> static void multiply(void **lanes)
{
    float a[16][16], b[16][8], d[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        const fragment &f = *(const fragment *)lanes[lane];
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < 2; e++)
                a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + e] = value(f.a[i] >> (16 * e));
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < 2; e++) b[2 * t + 8 * i + e][g] = value(f.b[i] >> (16 * e));
        for (int i = 0; i < 4; i++) d[g + 8 * (i / 2)][2 * t + i % 2] = f.d[i];
    }
    for (int r = 0; r < 16; r++)
        for (int k = 0; k < 16; k++)
            for (int c = 0; c < 8; c++) d[r][c] += a[r][k] * b[k][c];
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) ((const fragment *)lanes[lane])->d[i] = d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
}
void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    fragment f = { d, a, { b0, b1 } };
    emulated_together(&f, multiply<value_of_half>);
}
void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    fragment f = { d, a, { b0, b1 } };
    emulated_together(&f, multiply<value_of_bf16>);
}

/* Value of row r and column c of an operand whose rows are 128 bytes, pieces swapped (panel_piece). */
static float value_at(uint64_t operand, int r, int c)
{
    const uint64_t at = ((operand & (((uint64_t)1 << 44) - 1)) << 4) + (uint64_t)r * 128 + (uint64_t)c * 2 +
        (uint64_t)(c / 64) * ((operand >> 48 << 4) - 128);
    return halves.value[*(const uint16_t *)(uintptr_t)(at ^ (at >> 7 & 7) << 4)];
}
void emulated_group_product(float *d, int n, bool add, const uint32_t *rows, uint64_t a, uint64_t b)
{
    emulated_product p = { d, n, add, rows != nullptr, rows != nullptr, a, b, {} };
    const int g = emulated_now->lane / 4;
    for (int i = 0; rows && i < 4; i++)
        for (int t = 0; t < 4; t++) {
            const uint32_t two = __shfl_sync(0xffffffffu, rows[i], 4 * g + t);
            for (int e = 0; e < 2; e++) p.row[i % 2][2 * t + 8 * (i / 2) + e] = (uint16_t)(two >> (16 * e));
        }
    emulated_now->products.push_back(p);
}
static void multiply_group(const emulated_product &p, int warp, int lane)
{
    for (int i = 0; i < p.n / 2; i++) {
        const int h = i / 2 % 2, c = i / 4 * 8 + 2 * (lane % 4) + i % 2;
        float sum = p.add ? p.d[i] : 0;
        for (int k = 0; k < 16; k++)
            sum += (p.rows ? halves.value[p.row[h][k]] : value_at(p.a, warp * 16 + lane / 4 + 8 * h, k)) *
                (p.turned ? value_at(p.b, k, c) : value_at(p.b, c, k));
        p.d[i] = sum;
    }
}
void emulated_product_wait(size_t newest)
{
    auto &groups = emulated_now->product_groups;
    auto &products = emulated_now->products;
    if (groups.size() <= newest) return;
    const size_t done = groups.size() - newest, n = groups[done - 1];
    for (size_t i = 0; i < n; i++) multiply_group(products[i], (int)(emulated_now->index.x / LANES % 4), emulated_now->lane);
    products.erase(products.begin(), products.begin() + (ptrdiff_t)n);
    groups.erase(groups.begin(), groups.begin() + (ptrdiff_t)done);
    for (size_t &g : groups) g -= n;
}

struct matrix_rows {
    uint32_t *r;
    const void *at;
    bool turned;
};
static void load_rows(void **lanes)
{
    for (int m = 0; m < 4; m++) {
        uint16_t x[8][8];
        for (int i = 0; i < 8; i++) memcpy(x[i], ((const matrix_rows *)lanes[8 * m + i])->at, 16);
        for (int lane = 0; lane < LANES; lane++) {
            const matrix_rows &to = *(const matrix_rows *)lanes[lane];
            const int i = lane / 4, j = 2 * (lane % 4);
            to.r[m] = to.turned ? x[j][i] | (uint32_t)x[j + 1][i] << 16 : x[i][j] | (uint32_t)x[i][j + 1] << 16;
        }
    }
}
void emulated_matrices(uint32_t r[4], const void *at, bool turned)
{
    if ((uintptr_t)at % 16) emulated_stop("a matrix row that is not aligned to 16 bytes");
    matrix_rows mine = { r, at, turned };
    emulated_together(&mine, load_rows);
}

/* The ways without matrix instructions (matrix.cuh) beside the instructions: numbers that differ. */
struct matrix_check {
    uint16_t x[8 * 64];
    int differ;
};
struct matrix_check_args {
    matrix_check *check;
};
static float dot_of(uint32_t x, uint32_t y, float sum)
{
    return sum + emulated_halves[x & 0xffff] * emulated_halves[y & 0xffff] +
           emulated_halves[x >> 16] * emulated_halves[y >> 16];
}
static void compare_matrices(matrix_check_args args)
{
    matrix_check *c = args.check;
    const int lane = emulated_now->lane;
    uint32_t r[3][4], s[3][4];
    load_matrices(r[0], c->x + lane * 8), load_matrices_turned(r[1], c->x + lane * 8);
    load_matrices(r[2], c->x + 256 + lane * 8);
    exchange_matrices(s[0], c->x + lane * 8, lane), exchange_matrices_turned(s[1], c->x + lane * 8, lane);
    exchange_matrices(s[2], c->x + 256 + lane * 8, lane);
    float d[4] = { 1, 2, 3, 4 }, e[4] = { 1, 2, 3, 4 };
    mma_f16(d, r[0], r[1][0], r[2][1]);
    exchange_mma(e, r[0], r[1][0], r[2][1], lane, dot_of);
    c->differ += memcmp(r, s, sizeof r) != 0;
    for (int i = 0; i < 4; i++) c->differ += !(fabsf(d[i] - e[i]) <= 1e-4f);
}
extern "C" int emulated_check_matrices(const uint16_t halves[512])
{
    matrix_check c = {};
    memcpy(c.x, halves, sizeof c.x);
    matrix_check_args args = { &c };
    void *list[] = { &args };
    emulatedLaunchConfig_t config = { { 1, 1, 1 }, { LANES, 1, 1 }, 0, nullptr, nullptr, 0 };
    const void *kernel = kernel_address(compare_matrices);
    return emulatedLaunchKernelExC(&config, kernel, list) == emulatedSuccess ? c.differ : -1;
}

/* ---- the runtime ----------------------------------------------------------------------------------------------- */
static int fail_in[EMULATED_CALLS] = { -1, -1 };
void emulated_fail(enum emulated_call_kind what, int n)
{
    fail_in[what] = n;
}
void emulated_know(const void *k, emulated_call call, size_t bytes)
{
    kernels.insert({ k, kernel{ call, bytes, SHARED_USUAL } });
}
static int shared_of_card = SHARED_MOST;
void emulated_card(int shared)
{
    shared_of_card = shared ? shared : SHARED_MOST;
}
emulatedError_t emulatedFuncSetAttribute(const void *k, int, int value)
{
    auto found = kernels.find(k);
    if (found == kernels.end() || value > shared_of_card) return emulatedErrorLaunch;
    found->second.shared = (size_t)(value > SHARED_USUAL ? value : SHARED_USUAL);
    return emulatedSuccess;
}
emulatedError_t emulatedLaunchKernelExC(const emulatedLaunchConfig_t *c, const void *k, void **args)
{
    auto found = kernels.find(k);
    if (found == kernels.end() || c->dynamicSmemBytes > found->second.shared || c->blockDim.x == 0 ||
        c->blockDim.x > THREADS_MOST || c->blockDim.y * c->blockDim.z != 1 ||
        c->gridDim.x == 0 || c->gridDim.y == 0 || c->gridDim.z == 0 || c->gridDim.y > 65535 || c->gridDim.z > 65535)
        return emulatedErrorLaunch;
    launched l = { k, c->gridDim, c->blockDim, c->dynamicSmemBytes, {} };
    if (!capturing) {
        drain();
        run(&l, args);
        return emulatedSuccess;
    }
    l.args.resize((found->second.bytes + 7) / 8);
    memcpy(l.args.data(), args[0], found->second.bytes);
    capturing->launches.push_back(l);
    return emulatedSuccess;
}
static int n_launches;
int emulated_launches(void)
{
    return n_launches;
}
emulatedError_t emulatedGraphLaunch(emulatedGraphExec_t g, emulatedStream_t)
{
    if (fail_in[EMULATED_LAUNCH] >= 0 && fail_in[EMULATED_LAUNCH]-- == 0) return emulatedErrorLaunch;
    queued.push_back([g]() {
        for (launched &l : g->launches) {
            void *args[] = { l.args.data() };
            run(&l, args);
            n_launches++;
        }
    });
    return emulatedSuccess;
}
emulatedError_t emulatedStreamBeginCapture(emulatedStream_t, int)
{
    capturing = new emulated_graph();
    return emulatedSuccess;
}
emulatedError_t emulatedStreamEndCapture(emulatedStream_t, emulatedGraph_t *out)
{
    *out = capturing;
    capturing = nullptr;
    return emulatedSuccess;
}
emulatedError_t emulatedGraphInstantiate(emulatedGraphExec_t *out, emulatedGraph_t g, unsigned)
{
    *out = new emulated_graph(*g);
    return emulatedSuccess;
}
emulatedError_t emulatedGraphDestroy(emulatedGraph_t g)
{
    delete g;
    return emulatedSuccess;
}
emulatedError_t emulatedGraphExecDestroy(emulatedGraphExec_t g)
{
    drain();
    delete g;
    return emulatedSuccess;
}

emulatedError_t emulatedMalloc(void **out, size_t bytes)
{
    if (fail_in[EMULATED_MALLOC] >= 0 && fail_in[EMULATED_MALLOC]-- == 0) return emulatedErrorMemoryAllocation;
    if (bytes > memory_total - in_use || posix_memalign(out, 256, bytes)) return emulatedErrorMemoryAllocation;
    memset(*out, 0xff, bytes);
    sizes[*out] = bytes;
    in_use += bytes;
    return emulatedSuccess;
}
emulatedError_t emulatedFree(void *p)
{
    auto found = sizes.find(p);
    if (found == sizes.end()) return emulatedErrorLaunch;
    drain();
    in_use -= found->second;
    sizes.erase(found);
    free(p);
    return emulatedSuccess;
}
emulatedError_t emulatedMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = memory_total - in_use;
    *total = memory_total;
    return emulatedSuccess;
}
emulatedError_t emulatedMallocHost(void **out, size_t bytes)
{
    return emulatedMalloc(out, bytes);
}
emulatedError_t emulatedFreeHost(void *p)
{
    return emulatedFree(p);
}
emulatedError_t emulatedMemcpyAsync(void *to, const void *from, size_t bytes, int kind, emulatedStream_t s)
{
    return emulatedMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, s);
}
emulatedError_t emulatedMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride, size_t width,
                                      size_t rows, int, emulatedStream_t)
{
    std::vector<char> kept;
    if (rows && is_pageable(from)) kept.assign((const char *)from, (const char *)from + (rows - 1) * from_stride + width);
    queued.push_back([=, kept = std::move(kept)]() {
        const char *at = kept.empty() ? (const char *)from : kept.data();
        for (size_t i = 0; i < rows; i++) memcpy((char *)to + i * to_stride, at + i * from_stride, width);
    });
    if (is_pageable(to)) drain();
    return emulatedSuccess;
}
emulatedError_t emulatedMemsetAsync(void *p, int value, size_t bytes, emulatedStream_t)
{
    queued.push_back([=]() { memset(p, value, bytes); });
    return emulatedSuccess;
}

/* The card is the second one; the first is too small for anything. */
enum { OLD_CARD, CARD, CARDS };
static int card_set = OLD_CARD;
emulatedError_t emulatedGetDeviceCount(int *n)
{
    *n = CARDS;
    return emulatedSuccess;
}
emulatedError_t emulatedGetDevice(int *device)
{
    *device = card_set;
    return emulatedSuccess;
}
emulatedError_t emulatedSetDevice(int device)
{
    card_set = device;
    return emulatedSuccess;
}
emulatedError_t emulatedSetDeviceFlags(unsigned)
{
    return emulatedSuccess;
}
emulatedError_t emulatedDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == emulatedDevAttrMaxSharedMemoryPerBlockOptin ? device == CARD ? shared_of_card : 48 << 10
           : attribute == emulatedDevAttrMultiProcessorCount          ? UNITS
           : attribute == emulatedDevAttrComputeCapabilityMajor       ? 8 : 0;
    return emulatedSuccess;
}
emulatedError_t emulatedDeviceGetPCIBusId(char *, int, int)
{
    return emulatedErrorLaunch;
}
emulatedError_t emulatedGetDeviceProperties(struct emulatedDeviceProp *out, int device)
{
    snprintf(out->name, sizeof out->name, device == CARD ? "emulated GPU" : "emulated old GPU");
    return emulatedSuccess;
}
emulatedError_t emulatedRuntimeGetVersion(int *version)
{
    *version = 1000;
    return emulatedSuccess;
}
emulatedError_t emulatedGetLastError(void)
{
    return emulatedSuccess;
}
const char *emulatedGetErrorString(emulatedError_t e)
{
    return e == emulatedSuccess ? "no error" : e == emulatedErrorMemoryAllocation ? "out of memory" : "bad launch";
}
emulatedError_t emulatedStreamCreateWithFlags(emulatedStream_t *out, unsigned)
{
    *out = nullptr;
    return emulatedSuccess;
}
emulatedError_t emulatedStreamDestroy(emulatedStream_t)
{
    return emulatedSuccess;
}
emulatedError_t emulatedStreamSynchronize(emulatedStream_t)
{
    drain();
    return emulatedSuccess;
}
emulatedError_t emulatedEventCreate(emulatedEvent_t *out)
{
    *out = new emulated_event();
    return emulatedSuccess;
}
emulatedError_t emulatedEventCreateWithFlags(emulatedEvent_t *out, unsigned)
{
    return emulatedEventCreate(out);
}
emulatedError_t emulatedEventRecord(emulatedEvent_t e, emulatedStream_t)
{
    e->on_its_way++;
    queued.push_back([e]() {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        e->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
        e->on_its_way--;
    });
    return emulatedSuccess;
}
/* What was queued behind the event goes on waiting. */
emulatedError_t emulatedEventSynchronize(emulatedEvent_t e)
{
    std::vector<std::function<void()>> now;
    now.swap(queued);
    size_t n = 0;
    while (n < now.size() && e->on_its_way) now[n++]();
    queued.assign(now.begin() + (std::ptrdiff_t)n, now.end());
    return emulatedSuccess;
}
emulatedError_t emulatedEventElapsedTime(float *ms, emulatedEvent_t from, emulatedEvent_t to)
{
    *ms = (float)(1e3 * (to->seconds - from->seconds));
    return emulatedSuccess;
}
emulatedError_t emulatedEventDestroy(emulatedEvent_t e)
{
    drain();
    delete e;
    return emulatedSuccess;
}
