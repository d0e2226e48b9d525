/* device/device.h - a place with memory and execution: a CPU, a CUDA or HIP GPU.
 *
 * A device implements the op table, uploads weights into its own layouts, holds page pools, and
 * replays compiled tapes over steps. Everything a step touches is claimed at load or compile time.
 * Threads: one owner (the engine thread) calls a device. */
#ifndef LUCE_DEVICE_DEVICE_H
#define LUCE_DEVICE_DEVICE_H

#include "ops/ops.h"

struct device_info {
    char     name[128];         /* "AMD EPYC ...", "NVIDIA H200" */
    char     id[16];            /* "cpu", "cuda:0" */
    char     driver[64];        /* driver and runtime versions, or the instruction sets in use */
    uint64_t memory_total, memory_free;     /* bytes, free at the time of asking */
    int      n_units;           /* cores or multiprocessors */
};

/* Measured, by device_fns.measure: rates that the bench compares with. */
struct device_limits {
    /* Set by who asks: bytes that are read again and again, 0 for far more than caches hold. A device whose caches may
     * keep such a block reads that much, and keeps the memory for it until another size is asked about. */
    uint64_t block;
    double read_bytes_per_s;    /* best streaming read */
    double int8_ops_per_s;      /* 8-bit integer dot products, 2 ops a multiply-add; 0: not used */
    double bf16_ops_per_s;      /* bf16 matrix or dot rate */
    double f32_ops_per_s;
};

struct device_params {
    int n_threads;              /* CPU: 0 means the cores of the affinity mask */
    const char *isa;            /* CPU: highest instruction set to use, NULL: all that is there */
};

struct device;
struct device_cache;            /* page pools and page tables on the device */
struct program;                 /* a tape compiled for one width bucket */

struct cache_params {
    const struct kv_layout *layout;     /* finished; must outlive the cache */
    int n_slots;
    int n_pages[KV_POOLS];              /* including the n_slots banks at the front; KV_STATE: with checkpoints */
    int max_pages[KV_MAX_KINDS];        /* entries of a slot's page table */
};

/* One call of a traced run. */
struct trace {
    const struct tape *tape;
    const struct call *call;
    int      index;             /* of the call on its tape */
    double   seconds;
    uint64_t hash;              /* of the output's bytes (rows in use) */
};
typedef void (*trace_fn)(void *context, const struct trace *t);

/* Rows of a value, and where they go. */
struct rows_read {
    struct val v;
    int first_row, n_rows;
    void *to;
    size_t stride;              /* bytes from one row to the next there; 0: they lie side by side */
    bool held;                  /* `to` is memory of the device (device_fns.hold) */
    int  kept;                  /* held only. 1 + a sequence of the step: instead, the rows that its ACCEPT kept of it,
                                   in order, and zeros up to n_rows (device.ahead); 0: as first_row says */
};

/* For devices: the rows lie side by side at `from`, row_bytes each. */
void rows_put(const struct rows_read *r, const void *from, size_t row_bytes);

struct device_fns {
    void (*close)(struct device *d);
    luce_status (*info)(struct device *d, struct device_info *out, luce_error *err);
    /* True when a call has a kernel of its own here (struct target's has). */
    bool (*has)(const struct device *d, const struct call *c);

    /* Bytes that the weight will take here. */
    uint64_t (*weight_bytes)(const struct device *d, const struct weight *w);
    /* Copies the weight into the device's layout and sets w->dev and w->layout. `vector` and tables
     * read row by row (embeddings) stay in canonical form. LUCE_E_DEVMEM or LUCE_E_NOMEM when it
     * does not fit. The host bytes are not needed afterwards. */
    luce_status (*upload)(struct device *d, struct weight *w, luce_error *err);
    void (*release)(struct device *d, struct weight *w);

    luce_status (*cache_open)(struct device *d, struct device_cache **out, const struct cache_params *p,
                              luce_error *err);
    void (*cache_close)(struct device *d, struct device_cache *c);
    /* Whole pages from and to host memory, page_bytes of the kind, which may be KV_STATE or KV_JOURNAL. */
    luce_status (*page_read)(struct device *d, struct device_cache *c, int kind, int page, void *host,
                             luce_error *err);
    luce_status (*page_write)(struct device *d, struct device_cache *c, int kind, int page,
                              const void *host, luce_error *err);
    /* Page `from` of the kind into its page `to`. */
    luce_status (*page_copy)(struct device *d, struct device_cache *c, int kind, int from, int to,
                             luce_error *err);

    /* The tape, plan and cache (may be NULL for tapes without ATTN) must outlive the program. Programs
     * of one cache run in order and share one arena as large as the largest of them. */
    luce_status (*compile)(struct device *d, struct program **out, const struct tape *t,
                           const struct plan *p, struct device_cache *c, luce_error *err);
    void (*program_close)(struct device *d, struct program *p);
    /* Runs the step after all before it: applies its edits, then every call. May return before that is done; the step
     * is the caller's again. LUCE_E_DEVICE: the device is lost, which a wait may notice later. trace may be NULL;
     * tracing runs call by call. */
    luce_status (*run)(struct device *d, struct program *p, const struct step *s, trace_fn trace,
                       void *context, luce_error *err);
    /* Returns when all steps have run. */
    luce_status (*wait)(struct device *d, luce_error *err);
    /* Memory of the device for rows that outlive a step, zeros at first. Owned by the caller; NULL is fine for drop. */
    luce_status (*hold)(struct device *d, void **out, uint64_t bytes, luce_error *err);
    void (*drop)(struct device *d, void *held);
    /* Rows of kept values of the program's last run, which it waits for, once at most (never for held ones); of a run
     * that others are queued behind, what SAMPLE and ACCEPT give alone, and it does not wait for those. And rows of an
     * input before the next one: from host memory, or from held memory, which nobody waits for. write also takes other
     * kept values: tests poison an output before it is computed. */
    luce_status (*read)(struct device *d, struct program *p, const struct rows_read *rows, int n, luce_error *err);
    luce_status (*write)(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                         const void *host, luce_error *err);
    luce_status (*write_held)(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                              const void *held, luce_error *err);

    luce_status (*measure)(struct device *d, struct device_limits *limits, luce_error *err);
    /* Joules that the device has used since some moment; negative when it cannot tell. */
    double (*joules)(struct device *d);
    /* Largest normalised mean squared error of the call against the float64 reference that this
     * device promises (activation quantisation included). */
    double (*tolerance)(const struct device *d, const struct tape *t, const struct call *c);
};

struct device {
    const struct device_fns *fns;
    /* Wide and narrow kernels give the same bits, whatever the number of rows: classes coincide and
     * a prompt may be cut anywhere. */
    bool equal_bits;
    /* Steps run later than they are queued, and those behind may depend on what one keeps (step_seq.after,
     * step_seq.follows, rows_read.kept). */
    bool ahead;
    int  max_wide_rows;         /* most rows of a wide step that pays */
    const char *takes;          /* limits of its kernels, for messages; NULL: none */
    uint64_t n_waits;           /* times that the host has waited for its steps and their results; 0 of a CPU */
};

/* A kind of device: a row of device/table.c. */
struct device_kind {
    const char *name;           /* "cpu", "cuda", "hip" */
    const char *doc;
    int (*count)(void);         /* devices of this kind that are present now */
    luce_status (*open)(struct device **out, int index, const struct device_params *p, luce_error *err);
    void (*missing)(struct buf *out);           /* why count() is 0, and what to do; NULL: it never is */
};
/* Row i of the table, NULL past the end. */
const struct device_kind *device_kind_at(size_t i);
/* Adds why there is no GPU and what to do ("no GPU: ..."); nothing where there is one. */
void device_missing(struct buf *out);
/* Opens "cpu", "cuda:0", "auto" (the first GPU, else the CPU). The message of a failure lists what is
 * there. */
luce_status device_open(struct device **out, const char *id, const struct device_params *p, luce_error *err);
void device_close(struct device *d);            /* NULL is fine */
/* The target that tapes are recorded for. */
struct target device_target(const struct device *d);

#endif
