/* device/cpu/program.c - a tape as a list of jobs with resolved addresses, and its replay. */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"

enum { ALIGN = 256, SPLIT_ROWS = 8, SPLIT_POSITIONS = 512 };

/* Builds a program in two passes over the same code: the first counts jobs and bytes (program->jobs is
 * NULL), the second fills in. */
struct build {
    struct cpu *cpu;
    struct program *p;
    const struct tape *t;
    int n_jobs, n_ropes;
    const struct call *before;          /* of the job that was added last */
    size_t x_bytes[X_COUNT], partial_bytes, rope_bytes;
    int x_holds[X_COUNT];               /* id of the value whose form is in the shared buffer */
    size_t work_bytes;
    size_t routes_bytes, gathered_bytes[X_COUNT], slots_bytes;
    int routes_of;                      /* id of the indices whose routes are there */
};

static int rows_of(const struct build *b, enum domain d)
{
    return b->p->plan->bucket.rows[d];
}

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void *value_at(const struct build *b, struct val v)
{
    return v.id && b->p->memory ? b->p->memory + b->p->plan->offset[v.id] : NULL;
}

static void add_job(struct build *b, struct job job)
{
    if (b->p->jobs) {
        job.taken = &b->p->taken[b->n_jobs];
        b->p->jobs[b->n_jobs] = job;
    }
    b->before = job.call;
    b->n_jobs++;
}

static struct job job_of(const struct build *b, const struct call *c, int index)
{
    struct job j = { .run = b->cpu->kernels.op[c->op], .call = c, .index = index, .last = true,
                     .rows = c->shape[0].rows, .out_cols = c->shape[0].cols };
    for (int i = 0; i < c->n_in; i++) j.in[i] = value_at(b, c->in[i]);
    for (int i = 0; i < c->n_out; i++) j.out[i] = value_at(b, c->out[i]);
    if (c->n_in) j.cols = tape_shape(b->t, c->in[0]).cols;
    return j;
}

/* Bytes of rows of cols activations in a form. */
static size_t form_bytes(enum xkind kind, size_t rows, size_t cols)
{
    if (kind == X_Q8) return rows * ((cols + SUPER - 1) / SUPER) * sizeof(struct xblock);
    return rows * (kind == X_BF16 ? (cols + 1) / 2 : cols) * 4;
}

static void grow(size_t *bytes, size_t need)
{
    if (need > *bytes) *bytes = need;
}

/* Norms and attention make the int8 form of their output themselves, where the very next call reads it: the row is at
 * hand, and all threads need not meet once more. */
static bool makes_form(const struct build *b, enum xkind kind, int id)
{
    const struct call *c = b->before;
    if (kind != X_Q8 || !c || c->out[0].id != id) return false;
    return c->op == OP_NORM || (c->op == OP_ATTN && ((const struct attn_attr *)c->attr)->head_dim % GROUP == 0);
}

/* The forms of the input that the call's first n_mat weights read, each made unless it is there already. */
static void add_forms(struct build *b, struct job *j, int n_mat)
{
    int id = j->call->in[0].id;
    j->x[X_F32] = j->in[0];
    for (int i = 0; i < n_mat; i++) {
        enum xkind kind = packed_of(j->call->w[i])->strips_as->x;
        if (kind == X_F32) continue;
        j->x[kind] = b->p->x[kind];
        if (b->x_holds[kind] == id) continue;
        b->x_holds[kind] = id;
        size_t rows = (size_t)rows_of(b, j->rows) * (size_t)(j->times ? j->times : 1);
        grow(&b->x_bytes[kind], form_bytes(kind, rows, (size_t)j->cols));
        if (makes_form(b, kind, id)) {
            if (b->p->jobs) b->p->jobs[b->n_jobs - 1].x[kind] = j->x[kind];
            continue;
        }
        struct job q = *j;
        q.run = b->cpu->kernels.quantise[kind];
        q.last = false;
        add_job(b, q);
    }
}

/* Groups rows by expert, unless that is done; makes the forms of x and gathers them; then the products. */
static void add_experts(struct build *b, struct job *j)
{
    const struct moe_attr *a = j->call->attr;
    bool down = j->call->op == OP_MOE_DOWN;
    size_t n = (size_t)rows_of(b, j->rows) * (size_t)a->used, experts = (size_t)a->experts;
    grow(&b->routes_bytes, (2 * experts + 2 + n) * sizeof(int32_t));
    int32_t *at = b->p->routes;
    j->routes = at ? (struct routes){ at + 1, at + experts + 2, at, at + 2 * experts + 2 } : (struct routes){ 0 };
    if (b->routes_of != j->call->in[1].id) {
        struct job group = *j;
        group.run = job_group;
        group.last = false;
        add_job(b, group);
        b->routes_of = j->call->in[1].id;
    }
    j->times = down ? a->used : 1;
    if (down) j->cols /= a->used;
    add_forms(b, j, j->call->n_w);
    for (enum xkind k = 0; k < X_COUNT; k++) {
        bool reads = false;
        for (int i = 0; i < j->call->n_w; i++) reads = reads || packed_of(j->call->w[i])->strips_as->x == k;
        if (!reads) continue;
        grow(&b->gathered_bytes[k], form_bytes(k, n, (size_t)j->cols));
        j->gathered[k] = b->p->gathered[k];
        struct job gather = *j;
        gather.run = job_gather;
        gather.form = k;
        gather.last = false;
        add_job(b, gather);
    }
    if (!down) {
        add_job(b, *j);
        return;
    }
    memset(b->x_holds, 0, sizeof b->x_holds);       /* x stands there slot by slot, not row by row */
    grow(&b->slots_bytes, n * (size_t)j->out_cols * sizeof(float));
    j->slots = b->p->slots;
    struct job products = *j;
    products.last = false;
    add_job(b, products);
    j->run = job_moe_sum;
    add_job(b, *j);
}

static struct rope_table table_of(const struct call *c)
{
    const struct rope_kv_attr *a = c->attr;
    return (struct rope_table){ .freq = c->w[W_QKV_FREQ], .pairs = a->rope_dims / 2, .attr = a,
                                .magnitude = a->magnitude != 0.0f ? a->magnitude : 1.0f };
}

/* The table of angles for a call's frequencies, made at the start of the program. */
static const struct rope_table *rope_for(struct build *b, const struct call *c)
{
    const struct rope_kv_attr *a = c->attr;
    if (a->layout == ROPE_NONE) return NULL;
    struct rope_table t = table_of(c);
    for (int i = 0; i < b->n_ropes && b->p->ropes; i++) {
        const struct rope_table *o = &b->p->ropes[i];
        if (o->freq == t.freq && o->pairs == t.pairs && o->magnitude == t.magnitude &&
            !memcmp(o->attr->sections, a->sections, sizeof a->sections))
            return o;
    }
    return NULL;
}

static void add_ropes(struct build *b)
{
    for (int i = 0; i < b->t->n_calls; i++) {
        const struct call *c = &b->t->calls[i];
        if (c->op != OP_ROPE_KV) continue;
        const struct rope_kv_attr *a = c->attr;
        if (a->layout == ROPE_NONE || rope_for(b, c)) continue;
        struct rope_table *t = &b->p->ropes[b->n_ropes++];
        *t = table_of(c);
        b->rope_bytes += rounded((size_t)rows_of(b, DOM_ROWS) * (size_t)t->pairs * 2 * sizeof(float));
    }
}

static void add_calls(struct build *b)
{
    b->n_jobs = 0;
    b->before = NULL;
    b->routes_of = 0;
    memset(b->x_holds, 0, sizeof b->x_holds);
    for (int i = 0; i < b->n_ropes; i++)
        add_job(b, (struct job){ .run = job_rope_table, .index = -1, .rope = &b->p->ropes[i] });
    for (int i = 0; i < b->t->n_calls; i++) {
        const struct call *c = &b->t->calls[i];
        struct job j = job_of(b, c, i);
        if (c->op == OP_LINEAR) add_forms(b, &j, ((const struct linear_attr *)c->attr)->n_mat);
        if (c->op == OP_GLU) add_forms(b, &j, ((const struct glu_attr *)c->attr)->n_mat);
        if (c->op == OP_ROPE_KV) j.rope = rope_for(b, c);
        if (c->op == OP_DELTA) {
            const struct delta_attr *a = c->attr;
            grow(&b->work_bytes, (size_t)rows_of(b, DOM_ROWS) * 2 * (size_t)(a->k_heads * a->k_dim + a->v_heads) *
                                     sizeof(float));
            j.work = b->p->work;
        }
        if (c->op == OP_ATTN && b->p->n_splits) {
            const struct attn_attr *a = c->attr;
            size_t bytes = (size_t)rows_of(b, DOM_ROWS) * (size_t)a->heads * (size_t)b->p->n_splits *
                           (size_t)(a->head_dim + 2) * sizeof(float);
            grow(&b->partial_bytes, bytes);
        }
        if (c->op == OP_MOE_GLU || c->op == OP_MOE_DOWN) add_experts(b, &j);
        else add_job(b, j);
    }
}

/* Domains that some value has rows of: a step may have more sequences than the bucket's rows as long as
 * no value is counted by them. */
static void note_domains(struct program *p)
{
    for (int i = 1; i < p->tape->n_values; i++) p->uses[p->tape->values[i].shape.rows] = true;
}

static luce_status check_calls(const struct build *b, luce_error *err)
{
    for (int i = 0; i < b->t->n_calls; i++) {
        const struct call *c = &b->t->calls[i];
        const char *name = op_defs[c->op]->name;
        if (!b->cpu->kernels.op[c->op])
            return fail(err, LUCE_E_UNSUPPORTED, "cpu: no kernel for call %d, %s", i, name);
        bool cached = c->op == OP_ATTN || c->op == OP_ROPE_KV || c->op == OP_SHORT_CONV || c->op == OP_DELTA;
        if (cached && !b->p->cache)
            return fail(err, LUCE_E_ARG, "cpu: call %d, %s, needs a cache", i, name);
        for (int k = 0; k < c->n_w; k++)
            if (c->w[k] && !c->w[k]->dev)
                return fail(err, LUCE_E_ARG, "cpu: call %d, %s: weight %s was not uploaded", i, name, c->w[k]->name);
    }
    return LUCE_OK;
}

/* Memory of a cache's programs: a block that is large enough already, or a new one. */
static uint8_t *share_block(struct device_cache *c, size_t bytes)
{
    for (struct shared_block *b = c->blocks; b; b = b->next)
        if (b->bytes >= bytes) return b->at;
    struct shared_block *b = mem_zero(sizeof *b);
    if (!b) return NULL;
    b->at = mem_aligned(bytes, ALIGN);
    if (!b->at) {
        mem_free(b);
        return NULL;
    }
    b->bytes = bytes;
    b->next = c->blocks;
    c->blocks = b;
    return b->at;
}

static bool place(struct build *b)
{
    struct program *p = b->p;
    size_t at = rounded(p->plan->bytes), x_at[X_COUNT], gathered_at[X_COUNT];
    for (int k = 0; k < X_COUNT; k++) {
        x_at[k] = at;
        at += rounded(b->x_bytes[k]);
        gathered_at[k] = at;
        at += rounded(b->gathered_bytes[k]);
    }
    size_t routes = at, slots = routes + rounded(b->routes_bytes);
    at = slots + rounded(b->slots_bytes);
    size_t work = at;
    at += rounded(b->work_bytes);
    size_t partial = at, ropes = partial + rounded(b->partial_bytes);
    size_t all = ropes + b->rope_bytes + ALIGN;
    p->memory = p->cache ? share_block(p->cache, all) : mem_aligned(all, ALIGN);
    if (!p->memory) return false;
    for (int k = 0; k < X_COUNT; k++) {
        p->x[k] = p->memory + x_at[k];
        p->gathered[k] = p->memory + gathered_at[k];
    }
    p->routes = (int32_t *)(void *)(p->memory + routes);
    p->slots = (float *)(void *)(p->memory + slots);
    p->work = (float *)(void *)(p->memory + work);
    p->partial = (float *)(p->memory + partial);
    for (int i = 0; i < b->n_ropes; i++) {
        p->ropes[i].at = (float *)(p->memory + ropes);
        ropes += rounded((size_t)rows_of(b, DOM_ROWS) * (size_t)p->ropes[i].pairs * 2 * sizeof(float));
    }
    return true;
}

/* Splits of the longest sequence, when the step is so narrow that heads alone cannot feed the threads. */
static int splits_of(const struct cpu *cpu, const struct program *p)
{
    if (!p->cache || cpu->n_threads == 1 || p->plan->bucket.rows[DOM_ROWS] > SPLIT_ROWS) return 0;
    int pages = 0;
    for (int k = 0; k < p->cache->layout->n_kinds; k++)
        pages = p->cache->max_pages[k] > pages ? p->cache->max_pages[k] : pages;
    return (pages * PAGE + NARROW_ROWS + SPLIT_POSITIONS - 1) / SPLIT_POSITIONS;
}

luce_status cpu_compile(struct device *d, struct program **out, const struct tape *t, const struct plan *plan,
                        struct device_cache *c, luce_error *err)
{
    *out = NULL;
    struct program *p = mem_zero(sizeof *p);
    if (!p) return fail(err, LUCE_E_NOMEM, "out of memory for a program");
    *p = (struct program){ .tape = t, .plan = plan, .cache = c };
    struct build b = { .cpu = (struct cpu *)d, .p = p, .t = t };
    note_domains(p);
    luce_status st = check_calls(&b, err);
    if (st) goto bad;
    st = fail(NULL, LUCE_E_NOMEM, "-");
    p->n_splits = splits_of(b.cpu, p);
    p->ropes = mem_array((size_t)t->n_calls + 1, sizeof *p->ropes);
    if (!p->ropes) goto bad;
    add_ropes(&b);
    p->n_ropes = b.n_ropes;
    add_calls(&b);
    p->n_jobs = b.n_jobs;
    struct job *jobs = mem_array((size_t)b.n_jobs + 1, sizeof *jobs);
    p->taken_stride = rounded((size_t)(b.n_jobs + 1) * sizeof *p->taken) / sizeof *p->taken;
    p->taken = mem_aligned((size_t)b.cpu->n_threads * p->taken_stride * sizeof *p->taken, ALIGN);
    p->jobs = jobs;
    if (!jobs || !p->taken || !place(&b)) goto bad;
    add_calls(&b);
    const struct job *after = NULL;
    for (int i = p->n_jobs - 1; i >= 0; i--) {
        jobs[i].after = after;
        if (jobs[i].last && (jobs[i].run == job_linear || jobs[i].run == job_glu)) after = &jobs[i];
    }
    *out = p;
    return LUCE_OK;
bad:
    if (st == LUCE_E_NOMEM) fail(err, LUCE_E_NOMEM, "out of memory for a program of %d calls", t->n_calls);
    cpu_program_close(d, p);
    return st;
}

void cpu_program_close(struct device *d, struct program *p)
{
    (void)d;
    if (!p) return;
    if (!p->cache) mem_free(p->memory);
    mem_free(p->jobs);
    mem_free(p->taken);
    mem_free(p->ropes);
    mem_free(p);
}

static void walk(void *arg, int thread, int n_threads)
{
    (void)n_threads;
    const struct run *r = arg;
    const struct program *p = r->program;
    const struct kernels *k = &r->cpu->kernels;
    if (k->enter) k->enter();
    for (int i = 0; i < p->n_jobs; i++) {
        p->jobs[i].run(&p->jobs[i], r, thread);
        if (i + 1 < p->n_jobs) pool_barrier(r->cpu->pool, thread);
    }
    if (k->leave) k->leave();
}

struct single {
    const struct run *run;
    const struct job *job;
};

static void walk_one(void *arg, int thread, int n_threads)
{
    (void)n_threads;
    const struct single *s = arg;
    const struct kernels *k = &s->run->cpu->kernels;
    if (k->enter) k->enter();
    s->job->run(s->job, s->run, thread);
    if (k->leave) k->leave();
}

static void run_traced(struct run *r, trace_fn trace, void *context)
{
    uint64_t start = clock_ns();
    for (int i = 0; i < r->program->n_jobs; i++) {
        struct single s = { r, &r->program->jobs[i] };
        pool_run(r->cpu->pool, walk_one, &s);
        if (!s.job->last) continue;
        uint64_t end = clock_ns();
        size_t bytes = (size_t)r->rows[s.job->rows] * (size_t)s.job->out_cols * 4;
        trace(context, &(struct trace){ .tape = r->program->tape, .call = s.job->call, .index = s.job->index,
                                        .seconds = (double)(end - start) * 1e-9,
                                        .hash = hash_bytes(s.job->out[0], bytes, 0) });
        start = clock_ns();
    }
}

luce_status cpu_run(struct device *d, struct program *p, const struct step *s, trace_fn trace, void *context,
                    luce_error *err)
{
    struct run r = { .cpu = (struct cpu *)d, .program = p, .step = s,
                     .rows = { [DOM_ROWS] = s->head.n_rows, [DOM_OUT] = s->head.n_out,
                               [DOM_CTX] = s->head.n_ctx, [DOM_SEQS] = s->head.n_seqs } };
    r.n_threads = r.cpu->n_threads;
    for (int i = 0; i < DOM_COUNT; i++)
        if (r.rows[i] < 0 || (p->uses[i] && r.rows[i] > p->plan->bucket.rows[i]))
            return fail(err, LUCE_E_ARG, "step: %d rows in domain %d, the program has room for %d", r.rows[i], i,
                        p->plan->bucket.rows[i]);
    if (p->cache) {
        luce_status st = cache_edit(p->cache, s, err);
        if (st) return st;
    }
    memset(p->taken, 0, (size_t)r.n_threads * p->taken_stride * sizeof *p->taken);
    if (trace) run_traced(&r, trace, context);
    else pool_run(r.cpu->pool, walk, &r);
    return LUCE_OK;
}

static luce_status find_rows(const struct program *p, struct val v, int first, int n, uint8_t **at, size_t *bytes,
                             luce_error *err)
{
    struct shape s = tape_shape(p->tape, v);
    int room = v.id > 0 && v.id < p->plan->n_values ? p->plan->bucket.rows[s.rows] : 0;
    if (first < 0 || n < 0 || first > room || n > room - first)
        return fail(err, LUCE_E_ARG, "value %d: rows %d to %d, there are %d", v.id, first, first + n, room);
    *at = p->memory + p->plan->offset[v.id] + (uint64_t)first * shape_row_bytes(s);
    *bytes = (size_t)n * shape_row_bytes(s);
    return LUCE_OK;
}

luce_status cpu_wait(struct device *d, luce_error *err)
{
    (void)d, (void)err;
    return LUCE_OK;
}

luce_status cpu_hold(struct device *d, void **out, uint64_t bytes, luce_error *err)
{
    (void)d;
    *out = mem_zero(bytes);
    return *out ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for %.1f MiB of rows", (double)bytes / 1048576);
}

void cpu_drop(struct device *d, void *held)
{
    (void)d;
    mem_free(held);
}

luce_status cpu_read(struct device *d, struct program *p, const struct rows_read *rows, int n, luce_error *err)
{
    (void)d;
    for (int i = 0; i < n; i++) {
        const struct rows_read *r = &rows[i];
        uint8_t *at = NULL;
        size_t bytes = 0;
        luce_status st = find_rows(p, r->v, r->first_row, r->n_rows, &at, &bytes, err);
        if (st) return st;
        rows_put(r, at, r->n_rows ? bytes / (size_t)r->n_rows : 0);
    }
    return LUCE_OK;
}

luce_status cpu_write(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                      const void *host, luce_error *err)
{
    (void)d;
    uint8_t *at = NULL;
    size_t bytes = 0;
    luce_status st = find_rows(p, v, first_row, n_rows, &at, &bytes, err);
    if (!st) memcpy(at, host, bytes);
    return st;
}
