/* device/cpu/cpu.h - what the files of the CPU device share.
 *
 * A program is a list of jobs, one or two per call of the tape; every thread of the pool walks the
 * list, does its part of each job, and meets the others at a barrier after it.
 *
 * Numbers. The bits of a row depend on its own inputs alone: not on the other rows of the step, nor
 * on the number of threads, nor on the instruction set. To that end:
 *  - A matrix is held in strips of 16 rows, one row a lane, so that each output element has one f32
 *    accumulator that runs over k upwards; nothing is summed across lanes.
 *  - Quantised formats: activations become int8 in groups of 32 (struct xblock), dot products of a
 *    group are exact integers, and acc = fma(isum * dx, s, acc) per group, upwards; formats with an
 *    offset m per group add acc = fma(m, dx * sum(x), acc) right after. isum * dx without a conversion:
 *    a sum that starts at the bits of LIFT is, read as a float, LIFT + isum, exactly; dx has at most 22
 *    significant bits, so that LIFT * dx is exact too; fma(LIFT + isum, dx, -LIFT * dx) rounds once.
 *  - BF16: activations are rounded to bf16; per pair of k acc = (acc + w1 x1) + w0 x0, as the
 *    instruction VDPBF16PS does (products of two bf16 are exact). F16, F32 and the formats without a
 *    kernel of their own: acc = fma(w, x, acc).
 *  - Sums over a row (norms, softmax) run in 16 lanes that are combined as a fixed tree; exp is one
 *    polynomial. The compiler contracts nothing (-ffp-contract=off): a fused operation is written.
 *  - Experts: a row's products are those of LINEAR whichever rows share the expert; its slots are added
 *    in order, acc = acc + w y, the residual last.
 *  - Recurrent layers: every row goes through the state in order, in wide steps too; see recur.h.
 *  - Attention takes positions in tiles of 64, tiles in splits of 512, splits in order; a staged row
 *    stands where its position is. */
#ifndef LUCE_DEVICE_CPU_CPU_H
#define LUCE_DEVICE_CPU_CPU_H

#include <stdatomic.h>

#include "base/pool.h"
#include "device/device.h"
#include "quant/quant.h"

enum isa { ISA_PORTABLE, ISA_AVX2, ISA_AVX512, ISA_AMX, ISA_NEON, ISA_COUNT };
enum { LANES = 16, GROUP = 32, GROUPS = 8, SUPER = GROUP * GROUPS };
enum { CPU_HEAD_MAX = 512, CPU_EXPERTS = 1 << 15 };     /* largest head; most experts */

/* Forms in which products read their activations. */
enum xkind { X_F32, X_BF16, X_Q8, X_COUNT };

/* 256 activations of one row (the last block of a row may use fewer groups). Blocks lie
 * [k block][row]: what the columns of a tile need at one k is contiguous. */
struct xblock {
    int8_t  q[SUPER];
    float   d[GROUPS];              /* scale of each group: max |x| / 127, to 22 bits */
    float   drop[GROUPS];           /* -LIFT * d */
    float   s[GROUPS];              /* d * sum of the group's q */
    int16_t half[2 * GROUPS];       /* sums of q by 16 */
    int32_t start[GROUPS];          /* what a sum of products with codes that are 128 too large starts with */
};
_Static_assert(sizeof(struct xblock) == 416, "six cache lines and a half");
#define LIFT 12582912.0f            /* 1.5 * 2^23: the next floats are the next integers, up and down */
enum { LIFT_BITS = 0x4b400000 };

/* How a format is held in strips of 16 rows. For the formats multiplied as integers a strip is a
 * sequence of blocks of 256 k (the last one may have fewer groups of 32). */
struct strip_format {
    uint32_t id;
    enum xkind x;
    int  bias;                      /* integer formats: subtracted from every code */
    bool halves;                    /* a scale per 16 instead of per 32 */
    bool offsets;                   /* an offset per group is added */
    int  unit;                      /* elements of k that pack and unpack treat at once */
    int  step;                      /* a shorter last unit is a multiple of this */
    /* Bytes of a strip's unit of n elements. */
    size_t (*bytes)(const struct format *f, int n);
    /* One row's canonical bytes of a unit of n elements into lane `row` of the strip, and back. */
    void (*pack)(const struct format *f, const uint8_t *src, int n, int row, uint8_t *strip);
    void (*unpack)(const struct format *f, const uint8_t *strip, int n, int row, uint8_t *dst);
};
/* Never NULL: formats without a layout of their own keep their blocks, row after row. */
const struct strip_format *strip_format_find(uint32_t id);

/* What weight.dev points to. */
struct packed {
    const struct format *format;
    const struct strip_format *strips_as;
    int64_t in, out;
    int     n_strips;
    size_t  strip_bytes;
    uint8_t *data;                  /* [strip] */
    float   *vector;                /* the values in f32 when out is 1 */
};
static inline const struct packed *packed_of(const struct weight *w)
{
    return w ? w->dev : NULL;
}
static inline const float *vector_of(const struct weight *w)
{
    return w ? ((const struct packed *)w->dev)->vector : NULL;
}
/* Decodes row `row` to f32; scratch holds at least one unit in canonical form. */
void packed_row(const struct packed *p, int64_t row, float *dst);

/* A strip kernel's work: n_strips strips times n_cols columns. */
struct product {
    const struct packed *w;
    const uint8_t *strip;           /* the first */
    int   n_strips;                 /* 1 to PRODUCT_STRIPS */
    const uint8_t *then;            /* the strips that this thread reads next, to be asked for; NULL: not known */
    const void *x;                  /* all rows of the step, in the kernel's form */
    int   n_rows;                   /* of the step */
    int   first_col, n_cols;        /* 1 to PRODUCT_COLS of these rows */
    float *y;                       /* [strip][col][LANES] */
    float *out;                     /* where the first column's sums go from y, strips side by side, to be asked for; */
    int64_t out_cols;               /* so many floats on the next column's. NULL: not known */
    float *scratch;                 /* PRODUCT_SCRATCH floats */
};
enum { PRODUCT_STRIPS = 4, PRODUCT_COLS = 64, PRODUCT_SCRATCH = 8192 };
typedef void (*product_fn)(const struct product *p);

struct job;
struct run;
typedef void (*job_fn)(const struct job *j, const struct run *r, int thread);
/* y = act(g) * u for n values; y may be g. */
typedef void (*gate_fn)(enum act act, int n, const float *g, const float *u, float *y);

/* A loop of arithmetic or reads for the measurement of limits. */
struct probe {
    void  (*run)(long rounds);
    double ops;                     /* of one round */
};
typedef void (*read_fn)(const uint8_t *from, size_t bytes);     /* bytes: a multiple of 1024 */

/* One row per instruction set; a missing entry is taken from the row before. */
struct kernels {
    enum isa isa;
    const char *name;
    job_fn op[OP_COUNT];
    job_fn quantise[X_COUNT];
    gate_fn gate;
    struct { uint32_t id; product_fn run; } product[16];        /* by weight format */
    product_fn generic;
    struct probe int8, bf16, f32;
    read_fn read[3];
    void (*enter)(void), (*leave)(void);    /* around a thread's jobs; NULL: nothing to do */
};
extern const struct kernels kernels_portable, kernels_avx2, kernels_avx512, kernels_amx, kernels_neon;
/* The highest set that this processor has. */
enum isa isa_here(void);
/* Words for device_info.driver. */
const char *isa_name(enum isa isa);
/* The i-th set of this build and processor, the smallest first; NULL: there are no more. */
const char *isa_at(int i);
/* False when there is no such name. */
bool isa_named(const char *name, enum isa *out);
/* Merges the rows up to `isa`. */
void kernels_pick(struct kernels *out, enum isa isa);
/* Puts what a row has into `out`. */
void kernels_add(struct kernels *out, const struct kernels *k);
product_fn kernels_product(const struct kernels *k, uint32_t format);

/* Rotary angles: cos and sin of one freq weight for all rows, made once per step. */
struct rope_table {
    const struct weight *freq;
    int   pairs;
    const struct rope_kv_attr *attr;    /* which position turns each pair */
    float magnitude;
    float *at;                      /* [row][pair][cos, sin] */
};

/* Which rows each expert works for, made once per ROUTE by job_group. A route is a row's slot: number
 * row * used + slot. */
struct routes {
    int32_t *ends;                  /* [experts + 1]: sorted[ends[e] .. ends[e + 1] - 1] chose expert e */
    int32_t *active;                /* the experts that some row chose */
    int32_t *n_active;
    int32_t *sorted;                /* routes by expert, then by number */
};

struct job {
    job_fn run;
    const struct call *call;        /* of the tape; NULL: made by the device */
    int    index;                   /* of the call */
    bool   last;                    /* of its call's jobs */
    enum domain rows;               /* of the output */
    int    cols;                    /* of in[0] */
    int    out_cols;
    void  *in[CALL_IN];
    void  *out[CALL_OUT];
    void  *x[X_COUNT];              /* in[0] in the forms that its products read */
    int    times;                   /* rows that each row of in[0] counts for: slots; 0: 1 */
    struct routes routes;           /* of the calls of experts */
    enum xkind form;                /* that job_gather copies */
    void  *gathered[X_COUNT];       /* x of all routes as sorted */
    float *slots;                   /* MOE_DOWN: products of each route */
    float *work;                    /* DELTA: its second round's results */
    const struct rope_table *rope;
    _Atomic uint64_t *taken;        /* of the first thread: what nobody else need do, see share.h */
    const struct job *after;        /* the next LINEAR or GLU of the program, or NULL */
};

/* Memory that weights share, so that small ones lie on huge pages too. */
struct slab {
    uint8_t *at;
    size_t size, used;
    int    live;                    /* pieces that are in use */
    struct slab *next;
};
/* A piece on a cache line's boundary, or NULL. Owned by the caller, who gives it back. */
uint8_t *slab_take(struct slab **list, size_t bytes);
/* NULL is fine. */
void slab_give(struct slab **list, uint8_t *piece);

struct cpu {
    struct device device;
    struct pool *pool;
    int    n_threads;
    struct kernels kernels;
    uint8_t **scratch;              /* by thread, CPU_SCRATCH bytes */
    struct slab *slabs;
    struct {                        /* what measurements read, kept from one to the next */
        uint8_t *at;
        size_t bytes;
        uint64_t asked;             /* device_limits.block that it was made for */
        int    kernel;              /* the fastest */
    } probe;
};
enum { CPU_SCRATCH = 1 << 20 };

/* Memory that programs of a cache share: they run one after the other. */
struct shared_block {
    uint8_t *at;
    size_t bytes;
    struct shared_block *next;
};

struct device_cache {
    const struct kv_layout *layout;
    struct shared_block *blocks;    /* owned */
    int n_slots;
    int n_pages[KV_POOLS], max_pages[KV_MAX_KINDS];
    uint8_t *pool[KV_POOLS];        /* [page][page_bytes] */
    int32_t *table[KV_MAX_KINDS];   /* [slot][max_pages], -1: none */
};

struct program {
    const struct tape *tape;
    const struct plan *plan;
    struct device_cache *cache;
    uint8_t *memory;                /* arena and the rest; of the cache, or owned without one */
    struct job *jobs;
    int n_jobs;
    _Atomic uint64_t *taken;        /* [thread][taken_stride] */
    size_t taken_stride;            /* jobs, rounded up to a cache line */
    struct rope_table *ropes;
    int n_ropes;
    void *x[X_COUNT];               /* the shared forms of activations */
    void *gathered[X_COUNT];        /* those of the routes of experts, sorted */
    int32_t *routes;                /* memory of struct routes */
    float *slots;                   /* products of the routes before they are summed */
    float *work;                    /* of DELTA */
    float *partial;                 /* attention: [row][head][split][head_dim + 2] */
    int    n_splits;                /* in it; 0: splits are not spread over threads */
    bool uses[DOM_COUNT];           /* some value has rows of the domain */
};

struct run {
    struct cpu *cpu;
    struct program *program;
    const struct step *step;
    int rows[DOM_COUNT];
    int n_threads;
};
static inline uint8_t *scratch_of(const struct run *r, int thread)
{
    return r->cpu->scratch[thread];
}

/* Rows of in[0] as products read them. */
static inline int rows_of_job(const struct job *j, const struct run *r)
{
    return r->rows[j->rows] * (j->times ? j->times : 1);
}

/* The page that holds position pos of a slot in a kind, or NULL. */
static inline uint8_t *page_of(const struct device_cache *c, int kind, int slot, int pos)
{
    if (pos / PAGE >= c->max_pages[kind]) return NULL;
    int32_t page = c->table[kind][(size_t)slot * c->max_pages[kind] + pos / PAGE];
    return page < 0 ? NULL : c->pool[kind] + (uint64_t)page * c->layout->kind[kind].page_bytes;
}
static inline uint8_t *bank_of(const struct device_cache *c, int kind, int slot)
{
    return c->pool[kind] + (uint64_t)slot * c->layout->kind[kind].page_bytes;
}

/* Contracts as the functions of struct device_fns with these names (device/device.h). */
luce_status cpu_upload(struct device *d, struct weight *w, luce_error *err);
void cpu_release(struct device *d, struct weight *w);
uint64_t cpu_weight_bytes(const struct device *d, const struct weight *w);
luce_status cpu_cache_open(struct device *d, struct device_cache **out, const struct cache_params *p,
                           luce_error *err);
void cpu_cache_close(struct device *d, struct device_cache *c);
luce_status cpu_page_read(struct device *d, struct device_cache *c, int kind, int page, void *host,
                          luce_error *err);
luce_status cpu_page_write(struct device *d, struct device_cache *c, int kind, int page, const void *host,
                           luce_error *err);
luce_status cpu_page_copy(struct device *d, struct device_cache *c, int kind, int from, int to, luce_error *err);
luce_status cpu_compile(struct device *d, struct program **out, const struct tape *t, const struct plan *p,
                        struct device_cache *c, luce_error *err);
void cpu_program_close(struct device *d, struct program *p);
luce_status cpu_run(struct device *d, struct program *p, const struct step *s, trace_fn trace, void *context,
                    luce_error *err);
luce_status cpu_wait(struct device *d, luce_error *err);
luce_status cpu_hold(struct device *d, void **out, uint64_t bytes, luce_error *err);
void cpu_drop(struct device *d, void *held);
luce_status cpu_read(struct device *d, struct program *p, const struct rows_read *rows, int n, luce_error *err);
luce_status cpu_write(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                      const void *host, luce_error *err);
luce_status cpu_measure(struct device *d, struct device_limits *out, luce_error *err);
/* energy.c: see device_fns.joules; of all packages under a folder like /sys/class/powercap. */
double cpu_joules(struct device *d);
double cpu_energy_in(const char *folder);

/* Checks and applies the step's page table edits. */
luce_status cache_edit(struct device_cache *c, const struct step *s, luce_error *err);

/* Jobs that the device makes for itself. */
void job_rope_table(const struct job *j, const struct run *r, int thread);
void job_linear(const struct job *j, const struct run *r, int thread);
void job_glu(const struct job *j, const struct run *r, int thread);
void job_group(const struct job *j, const struct run *r, int thread);
void job_gather(const struct job *j, const struct run *r, int thread);
void job_moe_glu(const struct job *j, const struct run *r, int thread);
void job_moe_down(const struct job *j, const struct run *r, int thread);       /* into slots */
void job_moe_sum(const struct job *j, const struct run *r, int thread);        /* the slots into the output */

#endif
