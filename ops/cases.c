/* ops/cases.c - see cases.h. Steps and page images are made in ops/case_step.c. */
#include "ops/cases.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "ops/case_step.h"
#include "quant/quant.h"

const int case_widths[CASE_WIDTHS] = { 1, 2, 3, 5, 8, 17, 33, 64, 65, 200 };

void case_add(struct case_list *l, const struct op_case *c)
{
    if (l->failed) return;
    if (l->n == l->cap) {
        int cap = l->cap ? l->cap * 2 : 64;
        struct op_case *cases = mem_resize(l->cases, (size_t)cap * sizeof *cases);
        if (!cases) {
            l->failed = true;
            return;
        }
        l->cases = cases;
        l->cap = cap;
    }
    l->cases[l->n++] = *c;
}

void case_add_shapes(struct case_list *l, const struct op_case *shapes, size_t n,
                     struct val (*record)(struct case_env *env, const struct op_case *c))
{
    for (size_t i = 0; i < n; i++) {
        struct op_case c = shapes[i];
        c.record = record;
        c.label = c.tree ? "tree" : "";
        case_add(l, &c);
    }
}

void case_list_drop(struct case_list *l)
{
    mem_free(l->cases);
    *l = (struct case_list){ 0 };
}

struct tape *case_tape(struct case_env *env)
{
    return env->tape;
}

uint64_t case_random(struct case_env *env)
{
    return hash_u64(env->random += 0x9e3779b97f4a7c15u);
}

float case_normal(struct case_env *env)
{
    uint64_t bits = case_random(env);
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += (int)(bits >> 16 * i & 0xffff);
    return (float)(sum - 2 * 65535) * (1.0f / 37837.0f);    /* deviation of four uniform numbers */
}

static void nomem(struct case_env *env)
{
    if (!env->error.code) fail(&env->error, LUCE_E_NOMEM, "out of memory for a test case");
}

enum { POOL = 24 };             /* distinct blocks of one weight */

/* Blocks of a format that cannot be encoded: random bytes, drawn until the values are sane. */
static void random_block(struct case_env *env, const struct format *f, float std, uint8_t *block)
{
    float values[QUANT_MOST];
    for (int tries = 0; tries < 100000; tries++) {
        for (int i = 0; i < f->bytes; i++) block[i] = (uint8_t)case_random(env);
        if (f->valid && !f->valid(block, f->block)) continue;
        f->decode(block, values, f->block);
        float most = 0;
        for (int i = 0; i < f->block; i++) {
            float v = fabsf(values[i]);
            most = v > most || isnan(v) ? v : most;
        }
        if (most > std && most < 8 * std) return;
    }
    if (!env->error.code) fail(&env->error, LUCE_E_FORMAT, "no valid random block of format %s", f->name);
}

static void make_pool(struct case_env *env, const struct format *f, float std, uint8_t *pool)
{
    float values[QUANT_MOST], ones[QUANT_MOST];
    for (int j = 0; j < QUANT_MOST; j++) ones[j] = 1;
    for (int i = 0; i < POOL && !env->error.code; i++) {
        uint8_t *block = pool + (size_t)i * (size_t)f->bytes;
        if (!f->encode) {
            random_block(env, f, std, block);
            continue;
        }
        for (int j = 0; j < f->block; j++) values[j] = std * case_normal(env);
        f->encode(values, block, f->block, f->needs_importance ? ones : NULL);
    }
}

/* Fills the bytes of a weight: floats one by one, block formats by drawing from a pool of blocks. */
static void fill_weight(struct case_env *env, const struct format *f, float mean, float std,
                        uint8_t *bytes, uint64_t blocks)
{
    if (f->block == 1) {
        for (uint64_t i = 0; i < blocks; i++) {
            float v = mean + std * case_normal(env);
            f->encode(&v, bytes + i * (uint64_t)f->bytes, 1, NULL);
        }
        return;
    }
    uint8_t pool[POOL * BLOCK_MOST];
    make_pool(env, f, std, pool);
    size_t size = (size_t)f->bytes;
    for (uint64_t i = 0; i < blocks; i++) memcpy(bytes + i * size, pool + case_random(env) % POOL * size, size);
}

/* The next weight of the recording: made at the first one, found again later. */
static struct weight *next_weight(struct case_env *env, int in, int out, uint32_t format, bool *fresh)
{
    *fresh = false;
    if (env->error.code) return NULL;
    if (env->next_weight < env->n_weights) return env->weight[env->next_weight++];
    const struct format *f = format_find(format);
    if (env->n_weights == CASE_WEIGHTS || !f || !f->decode || in % f->block || f->block > QUANT_MOST ||
        f->bytes > BLOCK_MOST) {
        fail(&env->error, LUCE_E_ARG, "a test case cannot have rows of %d elements of format %d", in, (int)format);
        return NULL;
    }
    uint64_t rows = out ? (uint64_t)out : 1, bytes = rows * format_bytes(f, (uint64_t)in);
    struct weight *w = mem_zero(sizeof *w);
    uint8_t *host = mem_alloc(bytes);
    if (!w || !host) {
        mem_free(w);
        mem_free(host);
        nomem(env);
        return NULL;
    }
    *w = (struct weight){ .name = "case.weight", .dim = { (uint64_t)in, rows, 1 }, .type = format,
                          .host = host, .host_bytes = bytes };
    env->weight[env->n_weights++] = w;
    env->next_weight++;
    *fresh = true;
    return w;
}

static struct weight *weight_in(struct case_env *env, int in, int out, uint32_t format, float mean, float std)
{
    bool fresh;
    struct weight *w = next_weight(env, in, out, format, &fresh);
    if (!fresh) return w;
    const struct format *f = format_find(format);
    fill_weight(env, f, mean, std, (uint8_t *)(uintptr_t)w->host, w->host_bytes / (uint64_t)f->bytes);
    return w;
}

struct weight *case_weight(struct case_env *env, int in, int out, float mean, float std)
{
    return weight_in(env, in, out, out ? env->format : (uint32_t)Q_F32, mean, std);
}

struct weight *case_weight_experts(struct case_env *env, int in, int out, int experts, float std)
{
    struct weight *w = weight_in(env, in, out * experts, env->format, 0, std);
    if (!w) return NULL;
    w->dim[1] = (uint64_t)out;
    w->dim[2] = (uint64_t)experts;
    return w;
}

struct weight *case_weight_f32(struct case_env *env, int in, int out, float mean, float std)
{
    return weight_in(env, in, out, Q_F32, mean, std);
}

static void put_f32(struct weight *w, int i, float f)
{
    memcpy((uint8_t *)(uintptr_t)w->host + 4 * i, &f, 4);
}

struct weight *case_freq(struct case_env *env, int dims)
{
    bool fresh;
    struct weight *w = next_weight(env, dims / 2, 0, Q_F32, &fresh);
    for (int i = 0; fresh && i < dims / 2; i++) {
        float f = (float)pow(10000, -2.0 * i / dims);
        put_f32(w, i, f);
    }
    return w;
}

struct weight *case_allowed(struct case_env *env, int cols)
{
    bool fresh;
    struct weight *w = next_weight(env, cols, 0, Q_F32, &fresh);
    for (int i = 0; fresh && i < cols; i++) {
        float f = cols > 1 && case_random(env) % 4 == 0 ? -INFINITY : 0;
        put_f32(w, i, f);
    }
    return w;
}

struct weight *case_eighths(struct case_env *env, int cols)
{
    bool fresh;
    struct weight *w = next_weight(env, cols, 0, Q_F32, &fresh);
    for (int i = 0; fresh && i < cols; i++) {
        float f = ((float)(case_random(env) % 9) - 4) / 8;
        put_f32(w, i, f);
    }
    return w;
}

/* The next input; *rows is NULL unless its content is to be made. */
static struct val next_input(struct case_env *env, enum domain rows, int cols, float **fresh)
{
    static const char *const names[CASE_INPUTS] = { "x0", "x1", "x2", "x3" };
    *fresh = NULL;
    if (env->error.code) return (struct val){ 0 };
    int n = case_rows(env, rows), at = env->next_input++;
    if (at == CASE_INPUTS) {
        fail(&env->error, LUCE_E_ARG, "a test case has more than %d inputs", CASE_INPUTS);
        return (struct val){ 0 };
    }
    struct case_input_rows *in = &env->input[at];
    if (at == env->n_inputs) {
        *in = (struct case_input_rows){ .n_rows = n, .cols = cols };
        in->rows = mem_array((size_t)n * (size_t)cols, sizeof *in->rows);
        if (!in->rows) return nomem(env), (struct val){ 0 };
        *fresh = in->rows;
        env->n_inputs++;
    }
    return in->val = tape_input(env->tape, names[at], (struct shape){ rows, DT_F32, cols });
}

struct val case_input(struct case_env *env, enum domain rows, int cols, float std)
{
    float *x;
    struct val v = next_input(env, rows, cols, &x);
    size_t n = x ? (size_t)case_rows(env, rows) * (size_t)cols : 0;
    for (size_t i = 0; i < n; i++) x[i] = std * case_normal(env);
    return v;
}

struct val case_input_ties(struct case_env *env, enum domain rows, int cols)
{
    float *x;
    struct val v = next_input(env, rows, cols, &x);
    size_t n = x ? (size_t)case_rows(env, rows) * (size_t)cols : 0;
    for (size_t i = 0; i < n; i++) x[i] = (float)(case_random(env) % 7) - 3;
    if (x && case_rows(env, rows) > 1) x[cols + cols / 2] = NAN;
    for (int i = 0; x && case_rows(env, rows) > 2 && i < cols; i++) x[2 * cols + i] = -INFINITY;
    return v;
}

/* The token of some row that continues row `row`, or of any. */
static int32_t next_token(struct case_env *env, int row)
{
    const struct step *s = env->step;
    const struct step_seq *q = &s->seq[s->row[row].seq];
    int32_t token = (int32_t)(case_random(env) % CASE_TOKENS);
    for (int j = row - q->first_row + 1; !s->head.wide && j < q->n_rows; j++) {
        const struct step_row *next = &s->row[q->first_row + j];
        bool continues = (next->path & ~(UINT64_C(1) << j)) == s->row[row].path;
        if (continues && case_random(env) % 8) token = next->token;
    }
    return token;
}

struct val case_input_next(struct case_env *env, int cols)
{
    float *x;
    struct val v = next_input(env, DOM_ROWS, cols, &x);
    int n = x ? case_rows(env, DOM_ROWS) : 0;
    for (int row = 0; row < n; row++) {
        for (int c = 0; c < cols; c++) x[row * cols + c] = case_normal(env);
        x[row * cols + next_token(env, row)] = 10;
    }
    return v;
}

int case_cache(struct case_env *env, int kv_heads, int head_dim, int window, uint32_t k_format,
               uint32_t v_format)
{
    int layer = env->next_layer++;
    if (layer < env->kv.n_layers || env->error.code) return layer;
    luce_error *err = &env->error;
    if (!kv_layout_add(&env->kv, kv_heads, head_dim, head_dim, window, err))
        (void)kv_layout_finish(&env->kv, k_format, v_format, err);
    return layer;
}

int case_state(struct case_env *env, const struct kv_state *s)
{
    int layer = env->next_layer++;
    if (layer < env->kv.n_layers || env->error.code) return layer;
    if (!kv_layout_add_state(&env->kv, s, &env->error)) (void)kv_layout_finish(&env->kv, Q_F16, Q_F16, &env->error);
    return layer;
}

luce_status case_record(struct case_env *env, struct tape *t, struct target target, struct val *out,
                        luce_error *err)
{
    tape_begin(t, target, &env->kv);
    env->tape = t;
    env->next_input = env->next_weight = env->next_layer = 0;
    *out = env->c->record(env, env->c);
    tape_keep(t, *out, "y");
    luce_status st = env->error.code ? fail(err, env->error.code, "%s", env->error.text) : tape_end(t, err);
    if (!st && !env->max_pages) st = case_pages(env, err);
    return st;
}

void case_close(struct case_env *env)
{
    if (!env) return;
    for (int i = 0; i < env->n_weights; i++) {
        mem_free((void *)(uintptr_t)env->weight[i]->host);
        mem_free(env->weight[i]);
    }
    for (int i = 0; i < env->n_inputs; i++) mem_free(env->input[i].rows);
    for (int i = 0; i < KV_POOLS; i++) mem_free(env->pages[i]);
    mem_free(env->step);
    mem_free(env);
}

/* Positions and bank rows of a head's block into the interpreter. */
static void load_head(struct case_env *env, struct interp *p, int layer, const struct step_seq *s, int head,
                      float *row)
{
    const struct kv_layer *y = &env->kv.layer[layer];
    const uint8_t *pages = env->pages[y->kind];
    uint64_t bytes = env->kv.kind[y->kind].page_bytes;
    for (int pos = -NARROW_ROWS; pos < s->past - s->n_commit; pos++) {
        int page = pos < 0 ? s->slot : case_page(env, y->kind, s->slot, pos), at = pos < 0 ? -1 - pos : pos % PAGE;
        if (page < 0) continue;
        const uint8_t *base = pages + (uint64_t)page * bytes;
        double *k = interp_k(p, layer, s->slot, pos, head), *v = interp_v(p, layer, s->slot, pos, head);
        kv_decode(y->k_format, y->k_dim, base + kv_k_at(y, head), at, row);
        for (int i = 0; i < y->k_dim; i++) k[i] = row[i];
        kv_decode(y->v_format, y->v_dim, base + kv_v_at(y, head), at, row);
        for (int i = 0; i < y->v_dim; i++) v[i] = row[i];
    }
}

/* State and journal of a recurrent layer into the interpreter. */
static void load_state(struct case_env *env, struct interp *p, int layer, int slot)
{
    const struct kv_layer *y = &env->kv.layer[layer];
    const uint8_t *state = env->pages[KV_STATE] + (uint64_t)slot * env->kv.kind[KV_STATE].page_bytes + y->offset;
    const uint8_t *journal = env->pages[KV_JOURNAL] + (uint64_t)slot * env->kv.kind[KV_JOURNAL].page_bytes + y->journal;
    double *to_state = interp_state(p, layer, slot), *to_journal = interp_journal(p, layer, slot);
    uint64_t n = kv_conv_size(&y->state) + kv_memory_size(&y->state), m = kv_journal_at(&y->state, JOURNAL_PARTS);
    for (uint64_t i = 0; i < n; i++) to_state[i] = ((const float *)(const void *)state)[i];
    for (uint64_t i = 0; i < m; i++) to_journal[i] = ((const float *)(const void *)journal)[i];
}

static luce_status load_cache(struct case_env *env, struct interp *p, luce_error *err)
{
    float *row = mem_array(4096, sizeof *row);
    if (!row) return fail(err, LUCE_E_NOMEM, "out of memory for a test case");
    for (int layer = 0; layer < env->kv.n_layers; layer++)
        for (int slot = 0; env->kv.layer[layer].kind == KV_STATE && slot < env->n_slots; slot++)
            load_state(env, p, layer, slot);
    for (int layer = 0; layer < env->kv.n_layers; layer++)
        for (int i = 0; i < env->step->head.n_seqs; i++)
            for (int h = 0; h < env->kv.layer[layer].kv_heads; h++)
                load_head(env, p, layer, &env->step->seq[i], h, row);
    mem_free(row);
    return LUCE_OK;
}

static luce_status load_inputs(struct case_env *env, struct interp *p, luce_error *err)
{
    for (int i = 0; i < env->n_inputs; i++) {
        const struct case_input_rows *in = &env->input[i];
        size_t n = (size_t)in->n_rows * (size_t)in->cols;
        double *rows = mem_array(n ? n : 1, sizeof *rows);
        if (!rows) return fail(err, LUCE_E_NOMEM, "out of memory for a test case");
        for (size_t j = 0; j < n; j++) rows[j] = in->rows[j];
        luce_status st = interp_write(p, in->val, rows, in->n_rows, err);
        mem_free(rows);
        if (st) return st;
    }
    return LUCE_OK;
}

luce_status case_interp(struct case_env *env, const struct tape *t, struct interp **out, luce_error *err)
{
    *out = NULL;
    struct interp *p;
    luce_status st = interp_open(&p, t, env->kv.n_layers ? &env->kv : NULL, env->n_slots, env->max_positions,
                                 true, err);
    if (st) return st;
    if ((st = load_inputs(env, p, err)) || (st = load_cache(env, p, err))) {
        interp_close(p);
        return st;
    }
    *out = p;
    return LUCE_OK;
}
