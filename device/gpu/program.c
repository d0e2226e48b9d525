/* device/gpu/program.c - a tape compiled for one width bucket: its packs, the captured graphs, runs.
 * A run copies the step into pinned memory of the program and launches the graph, whose first node fetches it;
 * nothing is allocated. It does not wait: who reads does, and the program's next run, which overwrites the step. Every
 * node may start while its predecessor still runs and waits by itself (programmatic dependent launch). */
#include "device/gpu/program.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static unsigned read_by_rows(const struct tape *t, const struct weight *const *w, int n)
{
    unsigned keep = 0;
    for (int i = 0; i < t->n_calls; i++)
        for (int j = 0; j < n; j++)
            if (t->calls[i].op == OP_EMBED && t->calls[i].w[0] == w[j]) keep |= 1u << j;
    return keep;
}

luce_status program_packs(struct gpu *g, struct program *p, int index, luce_error *err)
{
    const struct call *c = &p->tape->calls[index];
    struct gpu_pack **out = &p->packs[index * PACK_MOST];
    if (c->op == OP_GLU) {
        int n = ((const struct glu_attr *)c->attr)->n_mat;
        return gpu_pack_get(g, c->w, n, true, read_by_rows(p->tape, c->w, n), &out[0], err);
    }
    int n = ((const struct linear_attr *)c->attr)->n_mat;
    bool biased = false;
    for (int i = 0; i < n; i++) biased |= c->w[W_LINEAR_BIAS + i] != NULL;
    luce_status st = LUCE_OK;
    for (int i = 0, end = n; i < n && !st; i = end, end = n) {
        if (biased) end = i + 1;
        while (!(st = gpu_pack_get(g, &c->w[i], end - i, false, read_by_rows(p->tape, &c->w[i], end - i), &out[i],
                                   err)) && !out[i])
            end--;
    }
    return st;
}

luce_status program_expert_packs(struct gpu *g, struct program *p, int index, luce_error *err)
{
    const struct call *c = &p->tape->calls[index];
    bool pair = c->op == OP_MOE_GLU;
    int each = pair ? MOE_GLU_W : MOE_DOWN_W;
    luce_status st = LUCE_OK;
    for (int i = 0; i < c->n_w && !st; i += each)
        st = gpu_pack_get(g, &c->w[i], each, pair, 0, &p->packs[index * PACK_MOST + i / each], err);
    return st;
}

static bool has_mirror(const struct program *p, const struct value *x)
{
    if (!x->keep || x->producer < 0) return false;
    int op = p->tape->calls[x->producer].op;
    return op == OP_ARGMAX || op == OP_LIKELY || op == OP_SAMPLE || op == OP_ACCEPT;
}

/* Pinned mirrors of kept tokens and their likelihoods, so that reading them needs no copy. */
static luce_status place_mirrors(struct gpu *g, struct program *p, luce_error *err)
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && n) {
            luce_status st = gpu_check(g, GPU(MallocHost)((void **)&p->host, n * sizeof *p->host),
                                       "claiming pinned memory", err);
            if (st) return st;
            n = 0;
        }
        for (int v = 1; v < p->tape->n_values; v++) {
            const struct value *x = &p->tape->values[v];
            if (!has_mirror(p, x)) continue;
            if (p->host) p->places[v].host = p->host + n;
            n += (size_t)p->plan->bucket.rows[x->shape.rows] * (size_t)x->shape.cols;
        }
    }
    return LUCE_OK;
}

/* A block, filled with a byte, grows to what this program needs. Launches hold addresses, so all programs build theirs
 * again. */
static luce_status grow(struct gpu *g, struct gpu_block *b, uint64_t bytes, int fill, const char *what, luce_error *err)
{
    if (bytes <= b->bytes) return LUCE_OK;
    luce_status st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "running", err);
    if (st) return st;
    gpu_free(g, b->at);
    *b = (struct gpu_block){ 0 };
    g->generation++;
    if ((st = gpu_alloc(g, (void **)&b->at, bytes, what, err))) return st;
    b->bytes = bytes;
    return gpu_check(g, GPU(MemsetAsync)(b->at, fill, bytes, g->stream), "clearing memory", err);
}

static luce_status claim(struct gpu *g, struct program *p, luce_error *err)
{
    luce_status st = grow(g, p->block, p->bytes, 0, "the values of a step", err);
    return st ? st : grow(g, &g->parts, p->parts_bytes ? p->parts_bytes : 256, 0xff, "the parts of products", err);
}

luce_status gpu_compile(struct device *d, struct program **out, const struct tape *t, const struct plan *plan,
                        struct device_cache *c, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    *out = NULL;
    struct program *p = mem_zero(sizeof *p);
    if (!p) return fail(err, LUCE_E_NOMEM, "out of memory for a program");
    *p = (struct program){ .tape = t, .plan = plan, .cache = c, .block = c ? &c->block : &g->block };
    p->places = mem_array((size_t)t->n_values + 1, sizeof *p->places);
    p->packs = mem_array((size_t)(t->n_calls + 1) * PACK_MOST, sizeof *p->packs);
    luce_status st = p->places && p->packs ? LUCE_OK : fail(err, LUCE_E_NOMEM, "out of memory for a program");
    if (!st) {
        program_values(p);
        st = place_mirrors(g, p, err);
    }
    if (!st) st = gpu_check(g, GPU(MallocHost)((void **)&p->step, step_bytes(plan->bucket.rows[DOM_ROWS])),
                            "claiming pinned memory", err);
    if (!st) st = gpu_check(g, GPU(EventCreateWithFlags)(&p->done, GPU(EventDisableTiming)), "claiming events", err);
    if (!st) st = program_prepare(g, p, err);
    if (!st) st = claim(g, p, err);
    if (st) {
        gpu_program_close(d, p);
        return st;
    }
    *out = p;
    return LUCE_OK;
}

static void drop_built(struct built *b)
{
    if (b->graph) (void)GPU(GraphExecDestroy)(b->graph);
    mem_free(b->launches.at);
}

void gpu_program_close(struct device *d, struct program *p)
{
    if (!p) return;
    if (p->queued > ((struct gpu *)d)->n_done) (void)gpu_wait(d, NULL);
    for (int i = 0; i < ATTN_DEPTHS; i++) drop_built(&p->built[i]);
    if (p->host) (void)GPU(FreeHost)(p->host);
    if (p->step) (void)GPU(FreeHost)(p->step);
    if (p->done) (void)GPU(EventDestroy)(p->done);
    mem_free(p->packs);
    mem_free(p->places);
    mem_free(p);
}

static luce_status start(struct gpu *g, const struct launch *l, luce_error *err)
{
    GPU(LaunchAttribute) overlap = { .id = GPU(LaunchAttributeProgrammaticStreamSerialization) };
    overlap.val.programmaticStreamSerializationAllowed = 1;
    GPU(LaunchConfig_t) config = { .gridDim = { l->grid[0], l->grid[1], l->grid[2] }, .blockDim = { l->block, 1, 1 },
                                   .dynamicSmemBytes = l->shared, .stream = g->stream, .attrs = &overlap,
                                   .numAttrs = l->overlap && g->major >= 9 };
    void *args[] = { (void *)l->args };
    return gpu_check(g, GPU(LaunchKernelExC)(&config, l->kernel, args), "starting a kernel", err);
}

/* Launches and graph for the block as it is now. */
static luce_status capture(struct gpu *g, struct program *p, enum attn_depth depth, luce_error *err)
{
    struct built *b = &p->built[depth];
    gpu_graph graph = NULL;
    luce_status st = claim(g, p, err);
    if (!st) st = program_emit(g, p, false, depth, &b->launches, err);
    if (st) return st;
    if (b->graph) (void)GPU(GraphExecDestroy)(b->graph);
    b->graph = NULL;
    st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "running", err);
    if (!st) st = gpu_check(g, GPU(StreamBeginCapture)(g->stream, GPU(StreamCaptureModeThreadLocal)),
                            "capturing a graph", err);
    if (st) return st;
    for (int i = 0; i < b->launches.n && !st; i++) st = start(g, &b->launches.at[i], err);
    gpu_error e = GPU(StreamEndCapture)(g->stream, &graph);
    if (!st) st = gpu_check(g, e, "capturing a graph", err);
    if (!st) st = gpu_check(g, GPU(GraphInstantiate)(&b->graph, graph, 0), "making a graph", err);
    if (graph) (void)GPU(GraphDestroy)(graph);
    if (!st) b->generation = g->generation;
    return st;
}

/* Whatever steps need that are to come: a text that grows does not stop for it. */
static luce_status build(struct gpu *g, struct program *p, luce_error *err)
{
    const struct built *last = &p->built[ATTN_NEAR];
    if (last->graph && last->generation == g->generation) return LUCE_OK;
    luce_status st = p->far_group ? capture(g, p, ATTN_FAR, err) : LUCE_OK;
    if (!st && p->attends) st = capture(g, p, ATTN_SHALLOW, err);
    return st ? st : capture(g, p, ATTN_NEAR, err);
}

/* The step's parts that are in use, to where the begin kernel reads them. */
static void put_step(struct program *p, const struct step *s)
{
    struct step *to = p->step;
    to->head = s->head;
    memcpy(to->seq, s->seq, (size_t)s->head.n_seqs * sizeof *s->seq);
    memcpy(to->out, s->out, (size_t)s->head.n_out * sizeof *s->out);
    memcpy(to->edit, s->edit, (size_t)s->head.n_edits * sizeof *s->edit);
    memcpy(to->ctx, s->ctx, (size_t)s->head.n_ctx * sizeof *s->ctx);
    memcpy(to->row, s->row, (size_t)s->head.n_rows * sizeof *s->row);
}

/* Of the step, by its deepest sequence. What a sequence comes after moves it on by as many rows as a step has. */
static enum attn_depth depth_of(const struct program *p, const struct step *s)
{
    bool shallow = p->attends;
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        if (p->far_group && attn_far(q->n_rows, p->far_group, q->past)) return ATTN_FAR;
        shallow &= attn_shallow(q->past + q->n_rows + (q->after ? NARROW_ROWS : 0));
    }
    return shallow ? ATTN_SHALLOW : ATTN_NEAR;
}

static int rows_in_use(const struct step *s, enum domain d)
{
    return d == DOM_ROWS ? s->head.n_rows : d == DOM_OUT ? s->head.n_out : d == DOM_CTX ? s->head.n_ctx
        : s->head.n_seqs;
}

/* One call of a traced run: its launches between two events, then a hash of what it wrote. */
static luce_status trace_call(struct gpu *g, struct program *p, const struct launches *l, int *at, int index,
                              gpu_event times[2], struct trace *out, const struct step *s, luce_error *err)
{
    float ms = 0;
    luce_status st = gpu_check(g, GPU(EventRecord)(times[0], g->stream), "tracing", err);
    for (; *at < l->n && l->at[*at].call == index && !st; ++*at) st = start(g, &l->at[*at], err);
    if (!st) st = gpu_check(g, GPU(EventRecord)(times[1], g->stream), "tracing", err);
    if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "running", err);
    if (!st) st = gpu_check(g, GPU(EventElapsedTime)(&ms, times[0], times[1]), "tracing", err);
    if (st || index < 0) return st;
    const struct call *c = &p->tape->calls[index];
    *out = (struct trace){ .tape = p->tape, .call = c, .index = index, .seconds = ms * 1e-3 };
    struct shape shape = c->shape[0];
    uint64_t bytes = c->n_out ? (uint64_t)rows_in_use(s, shape.rows) * shape_row_bytes(shape) : 0;
    void *copy = bytes ? mem_alloc(bytes) : NULL;
    if (bytes && !copy) return fail(err, LUCE_E_NOMEM, "out of memory for tracing");
    if (bytes) {
        st = gpu_check(g, GPU(MemcpyAsync)(copy, p->block->at + p->plan->offset[c->out[0].id], bytes,
                                           GPU(MemcpyDeviceToHost),
                                           g->stream), "tracing", err);
        if (!st) st = gpu_check(g, GPU(StreamSynchronize)(g->stream), "tracing", err);
        if (!st) out->hash = hash_bytes(copy, bytes, 0);
    }
    mem_free(copy);
    return st;
}

static luce_status run_traced(struct gpu *g, struct program *p, const struct step *s, trace_fn fn, void *context,
                              luce_error *err)
{
    struct launches l = { 0 };
    gpu_event times[2] = { NULL, NULL };
    int at = 0;
    luce_status st = claim(g, p, err);
    if (!st) st = program_emit(g, p, true, depth_of(p, s), &l, err);
    for (int i = 0; i < 2 && !st; i++) st = gpu_check(g, GPU(EventCreate)(&times[i]), "tracing", err);
    for (int i = -1; i < p->tape->n_calls && !st; i++) {
        struct trace t = { 0 };
        st = trace_call(g, p, &l, &at, i, times, &t, s, err);
        if (!st && i >= 0) fn(context, &t);
    }
    for (int i = 0; i < 2; i++)
        if (times[i]) (void)GPU(EventDestroy)(times[i]);
    mem_free(l.at);
    return st;
}

static luce_status wait(struct gpu *g, const char *what, luce_error *err)
{
    g->base.n_waits++;
    luce_status st = gpu_check(g, GPU(StreamSynchronize)(g->stream), what, err);
    if (!st) g->n_done = g->n_queued;
    return st;
}

luce_status gpu_wait(struct device *d, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    return g->n_done < g->n_queued ? wait(g, "running", err) : LUCE_OK;
}

/* For the program's last step, not for those that were queued behind it. */
static luce_status wait_for(struct gpu *g, const struct program *p, luce_error *err)
{
    g->base.n_waits++;
    luce_status st = gpu_check(g, GPU(EventSynchronize)(p->done), "running", err);
    if (!st) g->n_done = p->queued;
    return st;
}

luce_status gpu_run(struct device *d, struct program *p, const struct step *s, trace_fn trace, void *context,
                    luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    if (g->lost)
        return fail(err, LUCE_E_DEVICE, GPU_NAME ":%d failed before and cannot be used any more by this process",
                    g->index);
    luce_status st = p->queued > g->n_done ? wait_for(g, p, err) : LUCE_OK;
    if (st) return st;
    put_step(p, s);
    if (trace) return run_traced(g, p, s, trace, context, err);
    st = build(g, p, err);
    gpu_graph_exec graph = p->built[depth_of(p, s)].graph;
    if (!st) st = gpu_check(g, GPU(GraphLaunch)(graph, g->stream), "running", err);
    if (!st) st = gpu_check(g, GPU(EventRecord)(p->done, g->stream), "running", err);
    if (!st) p->queued = ++g->n_queued;
    return st;
}

static uint8_t *row_at(const struct program *p, struct val v, int row)
{
    return p->block->at + p->plan->offset[v.id] + (uint64_t)row * shape_row_bytes(p->tape->values[v.id].shape);
}

luce_status gpu_hold(struct device *d, void **out, uint64_t bytes, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    luce_status st = gpu_alloc(g, out, bytes, "rows that outlive a step", err);
    return st ? st : gpu_check(g, GPU(MemsetAsync)(*out, 0, bytes, g->stream), "clearing memory", err);
}

void gpu_drop(struct device *d, void *held)
{
    gpu_free((struct gpu *)d, held);
}

/* Rows on their way to `to`, `stride` bytes from one to the next. */
static luce_status fetch(struct gpu *g, const struct program *p, const struct rows_read *r, void *to, size_t stride,
                         luce_error *err)
{
    size_t row = shape_row_bytes(p->tape->values[r->v.id].shape);
    if (r->n_rows == 0) return LUCE_OK;
    return gpu_check(g, GPU(Memcpy2DAsync)(to, stride, row_at(p, r->v, r->first_row), row, row, (size_t)r->n_rows,
                                           r->held ? GPU(MemcpyDeviceToDevice) : GPU(MemcpyDeviceToHost), g->stream),
                     "reading results", err);
}

/* The kept rows of a sequence. */
static luce_status gather(struct gpu *g, const struct program *p, const struct rows_read *r, luce_error *err)
{
    size_t row = shape_row_bytes(p->tape->values[r->v.id].shape);
    struct gather_args a = { .from = row_at(p, r->v, 0), .to = r->to, .kept = &g->kept[r->kept - 1], .row_bytes = row,
                             .stride = r->stride ? r->stride : row };
    struct launch l;
    if (r->n_rows == 0) return LUCE_OK;
    launch_gather(&l, &a, r->n_rows);
    return start(g, &l, err);
}

/* How the rows come: they are here already, on the device they stay, by way of pinned memory where all of it fits
 * there (copies elsewhere are waited for one by one), or straight. */
enum way { BY_MIRROR, HELD, STAGED, STRAIGHT };

static enum way way_of(const struct program *p, const struct rows_read *r, bool staged)
{
    if (r->held) return HELD;
    return p->places[r->v.id].host ? BY_MIRROR : staged ? STAGED : STRAIGHT;
}

luce_status gpu_read(struct device *d, struct program *p, const struct rows_read *rows, int n, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    luce_status st = LUCE_OK;
    size_t total = 0, at = 0;
    bool wanted = false;
    for (int i = 0; i < n; i++) wanted |= !rows[i].held;
    for (int i = 0; i < n; i++)
        if (way_of(p, &rows[i], true) == STAGED)
            total += (size_t)rows[i].n_rows * shape_row_bytes(p->tape->values[rows[i].v.id].shape);
    bool staged = total <= GPU_STAGING;
    for (int i = 0; i < n && !st; i++) {
        const struct rows_read *r = &rows[i];
        size_t row = shape_row_bytes(p->tape->values[r->v.id].shape);
        enum way way = way_of(p, r, staged);
        if (way == BY_MIRROR) continue;
        if (r->kept) st = gather(g, p, r, err);
        else if (way == STAGED) st = fetch(g, p, r, g->staging[0] + at, row, err);
        else st = fetch(g, p, r, r->to, r->stride ? r->stride : row, err);
        if (way == STAGED) at += (size_t)r->n_rows * row;
    }
    if (!st && total) st = wait(g, "reading results", err);
    else if (!st && wanted && p->queued > g->n_done) st = wait_for(g, p, err);
    at = 0;
    for (int i = 0; i < n && !st; i++) {
        size_t row = shape_row_bytes(p->tape->values[rows[i].v.id].shape);
        const uint8_t *mirror = (const uint8_t *)p->places[rows[i].v.id].host;
        enum way way = way_of(p, &rows[i], staged);
        if (way == BY_MIRROR) rows_put(&rows[i], mirror + (size_t)rows[i].first_row * row, row);
        if (way != STAGED) continue;
        rows_put(&rows[i], g->staging[0] + at, row);
        at += (size_t)rows[i].n_rows * row;
    }
    return st;
}

static luce_status put_rows(struct gpu *g, struct program *p, struct val v, int first_row, int n_rows,
                            const void *from, bool held, luce_error *err)
{
    uint64_t bytes = (uint64_t)n_rows * shape_row_bytes(p->tape->values[v.id].shape);
    luce_status st = claim(g, p, err);
    return st ? st : gpu_check(g, GPU(MemcpyAsync)(row_at(p, v, first_row), from, bytes,
                                                   held ? GPU(MemcpyDeviceToDevice) : GPU(MemcpyHostToDevice),
                                                   g->stream), "writing inputs", err);
}

/* The host's memory is pageable, and may be used again when the copy returns. */
luce_status gpu_write(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                      const void *host, luce_error *err)
{
    struct gpu *g = (struct gpu *)d;
    luce_status st = put_rows(g, p, v, first_row, n_rows, host, false, err);
    return st ? st : gpu_check(g, GPU(StreamSynchronize)(g->stream), "writing inputs", err);
}

luce_status gpu_write_held(struct device *d, struct program *p, struct val v, int first_row, int n_rows,
                           const void *held, luce_error *err)
{
    return put_rows((struct gpu *)d, p, v, first_row, n_rows, held, true, err);
}
