/* device/gpu/emit.c - calls of a tape to launches of kernels, one function per op: long because all ops are here, so
 * that which of them go together can be read in one place. */
#include "base/mem.h"
#include "device/gpu/program.h"

/* Beyond this the outputs of gated units leave f16's range in known models; below, their small values keep
 * ten bits down to 2^-9. */
static const float gated_scale = 0x1p-5f;

struct emitter {
    struct gpu *g;
    struct program *p;
    const struct call *c;
    bool all;                   /* every value to f32 */
    enum attn_depth depth;      /* of the steps that it is for */
    struct launches *out;
    struct moe_sum_args sum;    /* z NULL: none; else the next call, a NORM, begins with it */
    struct {                    /* the products beside which the next one runs: */
        uint64_t parts, bytes;  /* of their parts, of the last one's tiles, */
        int blocks, last;       /* all and the last one's blocks; 0: none */
    } beside;
    int index;
    luce_error *err;
    luce_status st;
};

static struct launch *push(struct emitter *e, int n)
{
    struct launches *l = e->out;
    if (l->n + n > l->cap) {
        int cap = 2 * l->cap + n + 64;
        struct launch *at = mem_resize(l->at, (size_t)cap * sizeof *at);
        if (!at) {
            e->st = fail(e->err, LUCE_E_NOMEM, "out of memory for the launches of a program");
            return NULL;
        }
        l->at = at;
        l->cap = cap;
    }
    return &l->at[l->n];
}

static void done(struct emitter *e, int n)
{
    for (int i = 0; i < n; i++) e->out->at[e->out->n + i].call = e->index;
    e->out->n += n;
}

static struct shape shape_of(const struct emitter *e, struct val v)
{
    return e->p->tape->values[v.id].shape;
}
static int bucket_rows(const struct emitter *e, struct val v)
{
    return e->p->plan->bucket.rows[shape_of(e, v).rows];
}
static float *value_at(const struct emitter *e, struct val v)
{
    return v.id ? (float *)(void *)(e->p->block->at + e->p->plan->offset[v.id]) : NULL;
}
/* Where an output goes in f32: NULL when nobody reads it there. */
static float *output_at(const struct emitter *e, struct val v)
{
    return e->all || e->p->places[v.id].f32 ? value_at(e, v) : NULL;
}
static const float *vector_at(const struct weight *w)
{
    return w ? (const float *)(const void *)((const struct gpu_weight *)w->dev)->at : NULL;
}
static const int32_t *rows_at(const struct emitter *e, struct val v)
{
    const struct step_head *h = &e->g->step->head;      /* addresses only: it lies on the device */
    switch (shape_of(e, v).rows) {
    case DOM_OUT: return &h->n_out;
    case DOM_CTX: return &h->n_ctx;
    case DOM_SEQS: return &h->n_seqs;
    default: return &h->n_rows;
    }
}

struct form program_form(const struct program *p, struct val v)
{
    struct form f = { .scale = 1 };
    const struct value *x = &p->tape->values[v.id];
    if (!v.id || !p->places[v.id].form) return f;
    int rows = p->plan->bucket.rows[x->shape.rows];
    /* As a number: while a program is laid out there is no block yet, and only whether there is a form counts. */
    f.at = (void *)((uintptr_t)p->block->at + p->places[v.id].form_at);
    if (program_wide(p, x->shape.rows)) f.rows = (rows + WIDE_ROWS - 1) / WIDE_ROWS * WIDE_ROWS;
    else for (f.rows = 1; f.rows < rows && f.rows < NARROW_ROWS; f.rows *= 2);
    int op = x->producer < 0 ? -1 : p->tape->calls[x->producer].op;
    if (op == OP_GLU || op == OP_GATE) f.scale = gated_scale;
    return f;
}

static const struct call *producer_of(const struct emitter *e, struct val x)
{
    return &e->p->tape->calls[e->p->tape->values[x.id].producer];
}

/* Where a NORM's factors lie, for the deferred NORM after it; its sums are behind them. NULL: nobody asks. */
static float *factors_at(const struct emitter *e, int v)
{
    const struct place *x = &e->p->places[v];
    return x->before || x->factors ? (float *)(void *)(e->p->block->at + x->norm_at) : NULL;
}
static struct norm_behind norm_behind(const struct emitter *e, struct val x)
{
    const struct place *place = &e->p->places[x.id];
    if (!place->before) return (struct norm_behind){ 0 };
    const struct norm_attr *a = producer_of(e, x)->attr;
    float *factors = factors_at(e, x.id);
    return (struct norm_behind){ .sums = factors + NARROW_ROWS, .before = factors_at(e, place->before),
                                 .factors = place->factors ? factors : NULL, .cols = shape_of(e, x).cols,
                                 .stride = norm_stride(shape_of(e, x).cols), .eps = a->eps };
}
static struct norm_before norm_before(const struct emitter *e, struct val y)
{
    const struct val norm = { e->p->places[y.id].norm };
    if (!norm.id) return (struct norm_before){ 0 };
    return (struct norm_before){ .w = vector_at(producer_of(e, norm)->w[0]),
                                 .before = factors_at(e, e->p->places[norm.id].before),
                                 .sums = factors_at(e, norm.id) + NARROW_ROWS,
                                 .stride = norm_stride(shape_of(e, y).cols) };
}

/* The form of the call's output when this call writes it. */
static struct form output_form(const struct emitter *e)
{
    struct form none = { .scale = 1 };
    const struct place *x = &e->p->places[e->c->out[0].id];
    return x->form && x->form_from == e->index ? program_form(e->p, e->c->out[0]) : none;
}

static void map(struct emitter *e, struct val a, struct val b, float *y, struct form f, int kind, struct val like)
{
    struct map_args m = { .a = value_at(e, a), .b = value_at(e, b), .y = y, .form = f, .n_rows = rows_at(e, like),
                          .step = e->g->step, .cols = shape_of(e, like).cols, .kind = kind };
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_map(l, &m, bucket_rows(e, like));
    done(e, 1);
}

static void pad(struct emitter *e, struct val v, struct form f)
{
    int cols = shape_of(e, v).cols;
    if (!f.at || cols % 64 == 0) return;
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_pad(l, f, cols, bucket_rows(e, v));
    done(e, 1);
}

/* Before a product: the form of x, when no producer writes it. */
static void convert(struct emitter *e, struct val x)
{
    const struct place *p = &e->p->places[x.id];
    if (p->form_from == e->index) map(e, x, (struct val){ 0 }, NULL, program_form(e->p, x), MAP_COPY, x);
}

/* Whether who reads the value makes it. */
static bool inside(const struct emitter *e, struct val x)
{
    return !e->all && e->p->places[x.id].inside;
}
static struct made made(const struct emitter *e, struct val x)
{
    if (!inside(e, x)) return (struct made){ 0 };
    const struct call *c = producer_of(e, x);
    struct made m = program_made(e->p, x);
    m.x = value_at(e, c->in[0]), m.w = vector_at(c->w[0]), m.y = output_at(e, x), m.gate = value_at(e, c->in[1]);
    return m;
}

/* Whether the next launch behind pack i of a call is a narrow product of the same activations, and neither reads or
 * overwrites what the other does. */
static bool leads(const struct program *p, int index, int i)
{
    const struct call *c = &p->tape->calls[index], *next = c + 1;
    if (program_wide(p, p->tape->values[c->in[0].id].shape.rows)) return false;
    for (int j = i + 1; j < PACK_MOST; j++)
        if (p->packs[index * PACK_MOST + j]) return true;
    return index + 1 < p->tape->n_calls && next->op == OP_LINEAR && next->in[0].id == c->in[0].id && c->n_in == 1 &&
        next->n_in == 1;
}
/* Blocks for a product beside others: those multiprocessors that are left, where each would read no more there than
 * each of the others does; else all. */
static int blocks_for(const struct emitter *e, uint64_t bytes)
{
    const int all = e->g->n_units, left = all - e->beside.blocks;
    return left > 0 && bytes * (uint64_t)e->beside.last <= e->beside.bytes * (uint64_t)left ? left : all;
}
/* A narrow product of pack i. */
static void narrow_product(struct emitter *e, struct launch *l, struct product *p, int i)
{
    const uint64_t bytes = tiles_bytes(p->format, (uint64_t)p->n_rows_w, (uint64_t)p->n_cols);
    p->beside = e->beside.blocks > 0;
    p->leads = leads(e->p, e->index, i);
    p->parts = (uint32_t *)(void *)(e->g->parts.at + e->beside.parts);
    launch_product(l, p, p->beside ? blocks_for(e, bytes) : e->g->n_units);
    e->beside.last = (int)l->grid[0], e->beside.bytes = bytes;
    e->beside.blocks = p->leads ? e->beside.blocks + e->beside.last : 0;
    e->beside.parts = p->leads ? e->beside.parts + product_parts(p, e->g->n_units) : 0;
}

/* One product, of pack i, with x, into columns of y. */
static void product(struct emitter *e, int i, struct product *p)
{
    const struct gpu_pack *w = e->p->packs[e->index * PACK_MOST + i];
    bool wide = program_wide(e->p, shape_of(e, e->c->in[0]).rows);
    p->format = w->format;
    p->tiles = w->tiles;
    p->x = program_form(e->p, e->c->in[0]);
    p->make = made(e, e->c->in[0]);
    p->normed = norm_behind(e, e->c->in[0]);
    p->n_rows = rows_at(e, e->c->in[0]);
    p->n_cols = w->n_cols;
    p->n_rows_w = w->n_rows;
    p->unit = w->unit;
    p->panel = e->p->block->at + e->p->panel_at;
    struct launch *l = push(e, 2);
    if (!l) return;
    if (!wide) narrow_product(e, l, p, i);
    done(e, wide ? launch_wide_product(l, p, e->g->n_units) : 1);
}

static void emit_linear(struct emitter *e)
{
    const struct linear_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    int stride = shape_of(e, y).cols, at = 0;
    convert(e, e->c->in[0]);
    for (int i = 0; i < a->n_mat && !e->st; i++) {
        const struct gpu_pack *w = e->p->packs[e->index * PACK_MOST + i];
        if (!w) continue;                   /* part of the pack before */
        int rows = 0;
        for (int j = 0; j < w->n; j++) rows += (int)w->w[j]->dim[1];
        const float *residual = e->c->n_in > 1 ? value_at(e, e->c->in[1]) : NULL;
        struct product p = { .y = value_at(e, y) + at, .residual = residual ? residual + at : NULL,
                             .bias = vector_at(e->c->w[W_LINEAR_BIAS + i]), .out_rows = rows, .y_stride = stride,
                             .softcap = a->softcap, .form = program_form(e->p, (struct val){ e->p->places[y.id].norm }),
                             .norm = norm_before(e, y) };
        product(e, i, &p);
        at += rows;
    }
}

static void emit_glu(struct emitter *e)
{
    const struct glu_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    int cols = shape_of(e, y).cols;
    convert(e, e->c->in[0]);
    struct product p = { .y = output_at(e, y), .form = output_form(e), .out_rows = cols, .y_stride = cols,
                         .epilogue = a->act == ACT_SILU ? PRODUCT_SILU : PRODUCT_GELU };
    product(e, 0, &p);
    pad(e, y, p.form);
}

static struct moe_table *table_of(const struct emitter *e, struct val ids)
{
    const struct place *x = &e->p->places[ids.id];
    return x->form ? (struct moe_table *)(void *)(e->p->block->at + x->form_at) : NULL;
}

static struct route_args route_of(const struct emitter *e, const struct call *c)
{
    const struct route_attr *a = c->attr;
    struct val ids = c->out[0];
    return (struct route_args){ .z = value_at(e, c->in[0]), .bias = vector_at(c->w[0]),
                                .ids = (int32_t *)(void *)value_at(e, ids), .weights = value_at(e, c->out[1]),
                                .n_rows = rows_at(e, ids), .z_cols = shape_of(e, c->in[0]).cols,
                                .experts = a->experts, .used = a->used, .sigmoid = a->score == SCORE_SIGMOID,
                                .normalise = a->normalise, .shared = a->shared,
                                .scale = a->scale != 0 ? a->scale : 1 };
}

static void emit_route(struct emitter *e)
{
    struct val ids = e->c->out[0];
    if (inside(e, ids)) return;
    struct route_args x = route_of(e, e->c);
    struct launch *l = push(e, 2);
    if (!l) return;
    done(e, launch_route(l, &x, table_of(e, ids), bucket_rows(e, ids)));
}

/* The products of an expert call: one launch, or two where the shared expert's format differs. */
static void experts(struct emitter *e, float *y, enum product_epilogue epilogue, float scale)
{
    const struct moe_attr *a = e->c->attr;
    const struct gpu_pack *w = e->p->packs[e->index * PACK_MOST], *own = e->p->packs[e->index * PACK_MOST + 1];
    bool apart = own && own->format != w->format;
    struct moe_product p = { .format = w->format, .epilogue = epilogue, .parts = apart ? MOE_ROUTED : MOE_ALL,
                             .tiles = w->tiles, .shared = own ? own->tiles : NULL, .x = value_at(e, e->c->in[0]),
                             .y = y, .table = table_of(e, e->c->in[1]), .n_cols = w->n_cols, .n_rows_w = w->n_rows,
                             .out_rows = (int)e->c->w[0]->dim[1], .slots = a->used,
                             .width = moe_width(bucket_rows(e, e->c->in[0])), .unit = w->unit,
                             .shared_unit = own ? own->unit : 1, .scale = scale };
    if (e->c->op == OP_MOE_GLU && inside(e, e->c->in[1]))
        p.route = route_of(e, producer_of(e, e->c->in[1]));
    struct launch *l = push(e, 2);
    if (!l) return;
    launch_moe_product(l, &p, e->g->n_units);
    if (apart) {
        p.format = own->format;
        p.parts = MOE_SHARED;
        p.route.z = NULL;                   /* the table is there */
        launch_moe_product(l + 1, &p, e->g->n_units);
    }
    done(e, 1 + apart);
}

static void emit_moe_glu(struct emitter *e)
{
    const struct moe_attr *a = e->c->attr;
    experts(e, value_at(e, e->c->out[0]), a->act == ACT_SILU ? PRODUCT_SILU : PRODUCT_GELU, 1);
}

/* Whether the next call norms this one's output, to where nothing lies that this call reads: its own output in f32 may
 * have such a place. */
static bool norm_follows(const struct emitter *e)
{
    const struct call *next = e->c + 1;
    return !e->all && e->index + 1 < e->p->tape->n_calls && next->op == OP_NORM && next->in[0].id == e->c->out[0].id &&
        !e->p->places[next->out[0].id].f32;
}

static void emit_moe_down(struct emitter *e)
{
    const struct moe_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    float *z = (float *)(void *)(e->p->block->at + e->p->scratch_at);
    struct moe_sum_args sum = { .z = z, .weights = value_at(e, e->c->in[2]),
                                .residual = e->c->n_in > 3 ? value_at(e, e->c->in[3]) : NULL, .y = value_at(e, y),
                                .n_rows = rows_at(e, y), .slots = a->used, .cols = shape_of(e, y).cols };
    experts(e, z, PRODUCT_STORE, gated_scale);
    if (norm_follows(e) && norm_can_sum(sum.cols)) {
        e->sum = sum;
        return;
    }
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_moe_sum(l, &sum, bucket_rows(e, y));
    done(e, 1);
}

static void emit_embed(struct emitter *e)
{
    const struct embed_attr *a = e->c->attr;
    struct embed_args x = { .table = gpu_rows(e->c->w[0]), .step = e->g->step, .y = value_at(e, e->c->out[0]),
                            .scale = a->scale != 0 ? a->scale : 1 };
    x.table.unit = ((const struct gpu_weight *)e->c->w[0]->dev)->unit;
    if (!x.table.at) {
        e->st = fail(e->err, LUCE_E_UNSUPPORTED,
                     "%s is packed for a product on this device and cannot be read row by row; "
                     "load the model again to run another tape", e->c->w[0]->name);
        return;
    }
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_embed(l, &x, bucket_rows(e, e->c->out[0]));
    done(e, 1);
}

static void emit_norm(struct emitter *e)
{
    const struct norm_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    const bool deferred = e->p->places[y.id].before;
    if (inside(e, y) || (deferred && !e->all)) return;
    struct norm_args x = { .sum = e->sum, .x = value_at(e, e->c->in[0]), .w = vector_at(e->c->w[0]),
                           .residual = e->c->n_in > 1 ? value_at(e, e->c->in[1]) : NULL, .y = output_at(e, y),
                           .factors = deferred ? NULL : factors_at(e, y.id),
                           .form = deferred ? (struct form){ .scale = 1 } : output_form(e), .n_rows = rows_at(e, y),
                           .cols = shape_of(e, y).cols, .eps = a->eps };
    e->sum.z = NULL;
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_norm(l, &x, bucket_rows(e, y));
    done(e, 1);
}

static void emit_gate(struct emitter *e)
{
    const struct gate_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    map(e, e->c->in[0], (struct val){ 0 }, output_at(e, y), output_form(e),
        a->act == ACT_SILU ? MAP_SILU : MAP_GELU, y);
}
static void emit_take(struct emitter *e)
{
    struct val y = e->c->out[0];
    map(e, e->c->in[0], (struct val){ 0 }, output_at(e, y), output_form(e), MAP_TAKE, y);
}
static void emit_add(struct emitter *e)
{
    struct val y = e->c->out[0];
    map(e, e->c->in[0], e->c->in[1], output_at(e, y), output_form(e), MAP_ADD, y);
}

static int bucket_seqs(const struct program *p)
{
    return p->plan->bucket.rows[DOM_SEQS] > 0 ? p->plan->bucket.rows[DOM_SEQS] : 1;
}

static void emit_rope_kv(struct emitter *e)
{
    const struct rope_kv_attr *a = e->c->attr;
    struct val y = e->c->out[0];                /* none: keys and values alone */
    int rows = bucket_rows(e, e->c->in[0]);
    struct rope_kv_args x = {
        .x = value_at(e, e->c->in[0]), .q_norm = vector_at(e->c->w[W_QKV_QNORM]), .k_norm =
            vector_at(e->c->w[W_QKV_KNORM]),
        .freq = vector_at(e->c->w[W_QKV_FREQ]), .q = value_at(e, y), .step = e->g->step,
        .kv = gpu_kv_place(e->p->cache, e->c->layer), .heads = a->heads, .dims = a->rope_dims, .layout =
            (int)a->layout,
        .q_stride = a->q_stride ? a->q_stride : a->head_dim, .sections = { a->sections[0], a->sections[1] },
        .bucket_rows = rows, .magnitude = a->magnitude != 0 ? a->magnitude : 1, .eps = a->eps };
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_rope_kv(l, &x, rows, bucket_seqs(e->p));
    done(e, 1);
}

/* Positions that a slot of the layer's kind can have, with the rows of a step. */
static int most_positions(const struct program *p, int layer)
{
    return p->cache->max_pages[p->cache->layout->layer[layer].kind] * PAGE + NARROW_ROWS;
}
static int most_splits(const struct gpu *g, const struct program *p, int layer)
{
    const struct kv_place kv = gpu_kv_place(p->cache, layer);
    const int window = p->cache->layout->kind[p->cache->layout->layer[layer].kind].window;
    return attn_splits(most_positions(p, layer), window ? window + 2 * NARROW_ROWS : 0, attn_target(&kv, g->n_units));
}

/* Whether the call's attention has a kernel for depth, and rows and positions enough for it. */
static bool may_be_far(const struct program *p, const struct call *c)
{
    const struct attn_attr *a = c->attr;
    const struct kv_place kv = gpu_kv_place(p->cache, c->layer);
    return attn_deep_can(&kv) &&
        attn_far(p->plan->bucket.rows[DOM_ROWS], a->heads / a->kv_heads, most_positions(p, c->layer));
}

static void emit_attn(struct emitter *e)
{
    const struct attn_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    struct attn_args x = { .q = value_at(e, e->c->in[0]), .y = output_at(e, y), .form = output_form(e),
                           .step = e->g->step, .tree = e->g->tree, .heads = a->heads,
                           .kv = gpu_kv_place(e->p->cache, e->c->layer), .block = a->block,
                           .window = a->window, .scale = a->scale, .softcap = a->softcap };
    bool wide = program_wide(e->p, DOM_ROWS);
    x.target = attn_target(&x.kv, e->g->n_units);
    x.max_splits = most_splits(e->g, e->p, e->c->layer);
    uint64_t all = attn_scratch(bucket_rows(e, y), a->heads, a->head_dim, x.max_splits);
    uint64_t stats = 2 * (uint64_t)bucket_rows(e, y) * (uint64_t)a->heads * (uint64_t)x.max_splits;
    x.parts = (float *)(void *)(e->p->block->at + e->p->scratch_at);
    x.stats = x.parts + (all - stats);
    struct launch *l = push(e, 2);
    if (!l) return;
    enum attn_depth depth = e->depth == ATTN_FAR && !may_be_far(e->p, e->c) ? ATTN_NEAR : e->depth;
    done(e, launch_attn(l, &x, bucket_rows(e, y), wide, depth, e->g->n_units));
    pad(e, y, x.form);
}

static struct conv_state_args short_conv_of(const struct emitter *e, const struct call *c)
{
    const struct kv_state *k = &e->p->cache->layout->layer[c->layer].state;
    return (struct conv_state_args){ .x = value_at(e, c->in[0]), .w = vector_at(c->w[0]), .y = value_at(e, c->out[0]),
                                     .step = e->g->step, .place = gpu_state_place(e->p->cache, c->layer),
                                     .channels = k->channels, .taps = k->taps, .x_cols = shape_of(e, c->in[0]).cols };
}

static void emit_short_conv(struct emitter *e)
{
    struct val y = e->c->out[0];
    if (inside(e, y)) return;
    struct conv_state_args x = short_conv_of(e, e->c);
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_short_conv(l, &x, bucket_rows(e, y), bucket_seqs(e->p), program_wide(e->p, DOM_ROWS));
    done(e, 1);
}

static struct delta_args delta_of(const struct program *p, const struct call *c)
{
    const struct delta_attr *a = c->attr;
    const struct kv_state *k = &p->cache->layout->layer[c->layer].state;
    return (struct delta_args){
        .place = gpu_state_place(p->cache, c->layer), .memory_at = kv_conv_size(k),
        .keys_at = kv_journal_at(k, JOURNAL_KEY), .corrections_at = kv_journal_at(k, JOURNAL_CORRECTION),
        .decays_at = kv_journal_at(k, JOURNAL_DECAY), .channels = k->channels, .x_cols = k->channels,
        .k_heads = a->k_heads, .v_heads = a->v_heads, .k_dim = a->k_dim, .v_dim = a->v_dim, .grouped = a->grouped,
        .eps = a->eps, .arrived = p->cache->arrived };
}

static void emit_delta(struct emitter *e)
{
    struct val y = e->c->out[0];
    struct delta_args x = delta_of(e->p, e->c);
    x.x = value_at(e, e->c->in[0]);
    if (inside(e, e->c->in[0])) {
        x.conv = short_conv_of(e, producer_of(e, e->c->in[0]));
        x.x = x.conv.x;
        x.x_cols = x.conv.x_cols;
    }
    x.gates = value_at(e, e->c->in[1]);
    x.a = vector_at(e->c->w[W_DELTA_A]);
    x.dt = vector_at(e->c->w[W_DELTA_DT]);
    x.y = value_at(e, y);
    x.step = e->g->step;
    x.scratch = e->p->block->at + e->p->scratch_at;
    struct launch *l = push(e, 2);
    if (!l) return;
    done(e, launch_delta(l, &x, bucket_rows(e, y), bucket_seqs(e->p), program_wide(e->p, DOM_ROWS), e->g->n_units));
}

static void emit_gated(struct emitter *e)
{
    const struct gated_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    if (inside(e, y)) return;
    struct gated_args x = { .x = value_at(e, e->c->in[0]), .gate = value_at(e, e->c->in[1]),
                            .residual = e->c->n_in > 2 ? value_at(e, e->c->in[2]) : NULL,
                            .w = vector_at(e->c->w[0]), .y = output_at(e, y), .form = output_form(e),
                            .n_rows = rows_at(e, y), .heads = a->heads, .dim = a->dim,
                            .gate_cols = shape_of(e, e->c->in[1]).cols, .at = a->at, .stride = a->stride,
                            .silu = a->fn == GATE_SILU, .scalar = a->scalar, .eps = a->eps };
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_gated(l, &x, bucket_rows(e, y));
    done(e, 1);
    pad(e, y, x.form);
}

static void emit_conv(struct emitter *e)
{
    const struct conv_attr *a = e->c->attr;
    struct val y = e->c->out[0];
    int cols = shape_of(e, y).cols, at = a->side * a->taps;
    struct mix_args x = { .x = value_at(e, e->c->in[0]), .dyn = value_at(e, e->c->in[1]),
                          .base = vector_at(e->c->w[0]) + (size_t)at * (size_t)cols, .y = value_at(e, y),
                          .step = e->g->step, .cols = cols, .taps = a->taps, .group = a->group,
                          .dyn_cols = shape_of(e, e->c->in[1]).cols, .dyn_at = at * (cols / a->group) };
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_mix(l, &x, bucket_rows(e, y));
    done(e, 1);
}

static void emit_argmax(struct emitter *e)
{
    struct val y = e->c->out[0];
    struct argmax_args x = { .x = value_at(e, e->c->in[0]), .y = (int32_t *)(void *)value_at(e, y),
                             .host = e->p->places[y.id].host, .n_rows = rows_at(e, y),
                             .cols = shape_of(e, e->c->in[0]).cols, .scratch = e->p->block->at + e->p->scratch_at };
    struct launch *l = push(e, 2);
    if (!l) return;
    done(e, launch_argmax(l, &x, bucket_rows(e, y)));
}

static void emit_sample(struct emitter *e)
{
    struct val y = e->c->out[0];
    struct sample_args x = { .x = value_at(e, e->c->in[0]), .allowed = vector_at(e->c->w[0]),
                             .argmax = (const int32_t *)(const void *)value_at(e, e->c->in[1]),
                             .n_rows = rows_at(e, y), .out = e->g->step->out,
                             .y = (int32_t *)(void *)value_at(e, y), .host = e->p->places[y.id].host,
                             .cols = shape_of(e, e->c->in[0]).cols };
    struct launch *l = push(e, 1);
    if (!l) return;
    done(e, launch_sample(l, &x, bucket_rows(e, y)));
}

static void emit_accept(struct emitter *e)
{
    struct val y = e->c->out[0];
    struct accept_args x = { .chosen = (const int32_t *)(const void *)value_at(e, e->c->in[0]),
                             .y = (int32_t *)(void *)value_at(e, y), .host = e->p->places[y.id].host,
                             .step = e->g->step, .kept = e->g->kept };
    struct launch *l = push(e, 1);
    if (!l) return;
    launch_accept(l, &x, bucket_seqs(e->p));
    done(e, 1);
}

static void emit_likely(struct emitter *e)
{
    _Static_assert((int)LIKELY_PICKS == (int)LIKELY_MOST, "room for all");
    const struct likely_attr *a = e->c->attr;
    struct val ids = e->c->out[0], likely = e->c->out[1];
    struct likely_args x = { .x = value_at(e, e->c->in[0]), .ids = (int32_t *)(void *)value_at(e, ids),
                             .host_ids = e->p->places[ids.id].host, .likely = value_at(e, likely),
                             .host_likely = (float *)(void *)e->p->places[likely.id].host, .n_rows = rows_at(e, ids),
                             .cols = shape_of(e, e->c->in[0]).cols, .k = a->k,
                             .scale = a->scale != 0 ? a->scale : 1, .scratch = e->p->block->at + e->p->scratch_at };
    struct launch *l = push(e, 2);
    if (!l) return;
    done(e, launch_likely(l, &x, bucket_rows(e, ids)));
}

static void (*const emitters[OP_COUNT])(struct emitter *) = {
    [OP_EMBED] = emit_embed, [OP_NORM] = emit_norm, [OP_LINEAR] = emit_linear, [OP_GLU] = emit_glu,
    [OP_GATE] = emit_gate, [OP_ROPE_KV] = emit_rope_kv, [OP_ATTN] = emit_attn, [OP_TAKE] = emit_take,
    [OP_ADD] = emit_add, [OP_ARGMAX] = emit_argmax, [OP_ROUTE] = emit_route, [OP_MOE_GLU] = emit_moe_glu,
    [OP_MOE_DOWN] = emit_moe_down, [OP_SHORT_CONV] = emit_short_conv, [OP_DELTA] = emit_delta,
    [OP_GATED] = emit_gated, [OP_CONV] = emit_conv, [OP_LIKELY] = emit_likely,
    [OP_SAMPLE] = emit_sample, [OP_ACCEPT] = emit_accept,
};

bool program_has(int op)
{
    return emitters[op] != NULL;
}

luce_status program_emit(struct gpu *g, struct program *p, bool all, enum attn_depth depth, struct launches *out,
                         luce_error *err)
{
    struct emitter e = { .g = g, .p = p, .all = all, .depth = depth, .out = out, .index = -1, .err = err };
    out->n = 0;
    const int *most = p->plan->bucket.rows;
    struct begin_args b = { .host = p->step, .step = g->step, .tree = g->tree, .kept = g->kept,
                            .bucket = { .rows = most[DOM_ROWS], .outs = most[DOM_OUT], .seqs = bucket_seqs(p) } };
    for (int k = 0; p->cache && k < p->cache->layout->n_kinds; k++) {
        b.table[k] = p->cache->table[k];
        b.max_pages[k] = p->cache->max_pages[k];
        b.n_kinds = k + 1;
        b.n_slots = p->cache->n_slots;
    }
    struct launch *l = push(&e, 1);
    if (!l) return e.st;
    launch_begin(l, &b);
    done(&e, 1);
    for (e.index = 0; e.index < p->tape->n_calls && !e.st; e.index++) {
        e.c = &p->tape->calls[e.index];
        /* The bucket may have no rows of the call's domain. */
        if (bucket_rows(&e, e.c->n_out ? e.c->out[0] : e.c->in[0]) == 0) continue;
        emitters[e.c->op](&e);
    }
    if (out->n > 1) out->at[1].overlap = false;         /* begin has ended when anything else starts */
    return e.st;
}

/* ---- scratch ------------------------------------------------------------------------------------------ */
static void most(uint64_t *a, uint64_t b)
{
    if (b > *a) *a = b;
}

luce_status program_prepare(struct gpu *g, struct program *p, luce_error *err)
{
    const int step_rows = p->plan->bucket.rows[DOM_ROWS];
    uint64_t scratch = 0, panel = 0, parts = 0;     /* parts: of products beside each other */
    luce_status st = LUCE_OK;
    for (int i = 0; i < p->tape->n_calls && !st; i++) {
        const struct call *c = &p->tape->calls[i];
        const int rows = p->plan->bucket.rows[c->shape[0].rows], cols = p->tape->values[c->in[0].id].shape.cols;
        for (int j = 0; j < c->n_w; j++)
            if (c->w[j] && !c->w[j]->dev) return fail(err, LUCE_E_ARG, "%s is not on the device", c->w[j]->name);
        if (c->op == OP_ATTN && !program_wide(p, DOM_ROWS)) {
            const struct attn_attr *a = c->attr;
            most(&scratch, 4 * attn_scratch(step_rows, a->heads, a->head_dim, most_splits(g, p, c->layer)));
            p->attends = true;
            if (may_be_far(p, c) && a->heads / a->kv_heads > p->far_group) p->far_group = a->heads / a->kv_heads;
        }
        if (c->op == OP_DELTA && program_wide(p, DOM_ROWS)) {
            const struct delta_args a = delta_of(p, c);
            most(&scratch, delta_wide_scratch(&a, step_rows, bucket_seqs(p)));
        }
        if (c->op == OP_MOE_DOWN)
            most(&scratch, sizeof(float) * (uint64_t)rows * (uint64_t)((const struct moe_attr *)c->attr)->used *
                               (uint64_t)c->shape[0].cols);
        if (c->op == OP_ARGMAX) most(&scratch, argmax_scratch(rows, cols));
        if (c->op == OP_LIKELY) most(&scratch, likely_scratch(rows, cols));
        if (c->op == OP_MOE_GLU || c->op == OP_MOE_DOWN) st = program_expert_packs(g, p, i, err);
        if (c->op != OP_LINEAR && c->op != OP_GLU) continue;
        st = program_packs(g, p, i, err);
        for (int j = 0; j < PACK_MOST && !st; j++) {
            const struct gpu_pack *w = p->packs[i * PACK_MOST + j];
            if (!w) continue;
            struct product x = { .format = w->format, .n_cols = w->n_cols, .n_rows_w = w->n_rows,
                                 .epilogue = c->op == OP_GLU ? PRODUCT_SILU : PRODUCT_STORE,    /* pairs of strips */
                                 .x = program_form(p, c->in[0]) };
            if (x.x.rows <= NARROW_ROWS) most(&p->parts_bytes, parts += product_parts(&x, g->n_units));
            else most(&panel, wide_panel_bytes(&x));
            if (!leads(p, i, j)) parts = 0;
        }
    }
    scratch = (scratch + 1023) / 1024 * 1024;
    p->panel_at = p->scratch_at + scratch;
    p->bytes = p->panel_at + panel;
    return st;
}
