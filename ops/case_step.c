/* ops/case_step.c - the step of a test case and the pages that it finds.
 * Sequences share the rows evenly and lie in slots out of order. The first has `past` positions, the
 * others random ones up to about that (the third none). A narrow or wide step with a past carries a
 * commit of up to 5 bank rows. Narrow rows are chains, or random trees when `tree` is set; wide rows
 * see up to themselves, with `tree` up to the end of their sequence from the middle on (as image
 * runs do). Page ids are scattered; pages that no row of a windowed kind can see are not there. */
#include "ops/case_step.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "ops/ref.h"

int case_rows(const struct case_env *env, enum domain d)
{
    return step_rows_of(env->step, d);
}

static void make_seq(struct case_env *env, struct step_seq *s, int number, int first, int n)
{
    const struct op_case *c = env->c;
    *s = (struct step_seq){ .slot = (number * 2 + 1) % env->n_slots, .first_row = first, .n_rows = n };
    s->past = number == 0 ? c->past : number == 2 ? 0 : (int)(case_random(env) % (unsigned)(c->past + 70));
    int most = s->past < 5 ? s->past : 5;
    s->n_commit = c->past ? (int)(case_random(env) % (unsigned)(most + 1)) : 0;
    int row = 0;
    for (int i = 0; i < s->n_commit; i++) {
        row += (int)(case_random(env) % 8);
        s->commit[i] = (uint8_t)row++;
    }
}

/* The path of narrow row j of a sequence: its ancestors' and itself. */
static uint64_t make_path(struct case_env *env, const struct step_row *rows, int j)
{
    int parent = j - 1;
    if (env->c->tree && j) parent = j - 1 - (int)(case_random(env) % (unsigned)(j < 4 ? j : 4));
    return (parent >= 0 ? rows[parent].path : 0) | (uint64_t)1 << j;
}

static void make_rows(struct case_env *env, int number)
{
    const struct step_seq *s = &env->step->seq[number];
    struct step_row *rows = &env->step->row[s->first_row];
    bool wide = env->c->wide;
    for (int j = 0; j < s->n_rows; j++) {
        struct step_row *r = &rows[j];
        *r = (struct step_row){ .token = (int32_t)(case_random(env) % CASE_TOKENS), .seq = number };
        if (!wide) r->path = make_path(env, rows, j);
        r->index = s->past + (wide ? j : __builtin_popcountll(r->path) - 1);
        r->see = wide && env->c->tree && j >= s->n_rows / 2 ? s->past + s->n_rows - 1 : r->index;
        for (int i = 0; i < 3; i++) r->rope[i] = r->index + env->c->rope + 3 * i;
    }
    int end = s->past + s->n_rows;
    if (end > env->max_positions) env->max_positions = end;
}

struct step_draw case_draw(int row)
{
    static const int top_k[] = { 0, 0, 1, 5, 40, 1500, 1 << 20 };
    static const float temperature[] = { 0, 0.25f, 0.7f, 1, 1.5f }, top_p[] = { 0, 0.3f, 0.95f, 1 },
                       min_p[] = { 0, 0, 0.05f, 1 };
    uint64_t x = hash_u64((uint64_t)row + 1), y = hash_u64(x);
    float t = temperature[x % COUNT(temperature)];
    return (struct step_draw){ .scale = t > 0 ? 1.44269504f / t : 0, .top_k = top_k[x / 16 % COUNT(top_k)],
                               .top_p = top_p[x / 256 % COUNT(top_p)], .min_p = min_p[x / 4096 % COUNT(min_p)],
                               .u = (double)(y >> 11) * 0x1p-53 };
}

void case_step(struct case_env *env)
{
    const struct op_case *c = env->c;
    struct step *s = env->step;
    int n_seqs = c->n_seqs ? c->n_seqs : 1;
    env->n_slots = (n_seqs + 1) | 1;            /* odd: doubling reaches every slot */
    s->head = (struct step_head){ .n_rows = c->n_rows, .n_seqs = n_seqs, .wide = c->wide };
    for (int i = 0, at = 0; i < n_seqs; i++) {
        int n = c->n_rows / n_seqs + (i < c->n_rows % n_seqs);
        make_seq(env, &s->seq[i], i, at, n);
        make_rows(env, i);
        at += n;
    }
    int n_out = c->all ? c->n_rows : (c->n_rows + 1) / 2;
    s->head.n_out = n_out < STEP_OUTS ? n_out : STEP_OUTS;
    for (int i = 0; i < s->head.n_out; i++) {
        int row = c->all ? i : c->n_rows - 1 - (i * 2) % c->n_rows;
        s->out[i] = (struct step_out){ .row = row, .draw = case_draw(row) };
    }
    if (!env->max_positions) env->max_positions = 1;
}

luce_status case_open(struct case_env **out, const struct op_case *c, uint32_t format, uint64_t seed,
                      luce_error *err)
{
    *out = NULL;
    struct case_env *env = mem_zero(sizeof *env);
    if (env) env->step = mem_zero(sizeof *env->step);
    if (!env || !env->step) {
        case_close(env);
        return fail(err, LUCE_E_NOMEM, "out of memory for a test case");
    }
    env->c = c;
    env->format = format;
    env->random = hash_u64(seed);
    case_step(env);
    *out = env;
    return LUCE_OK;
}

int case_page(const struct case_env *env, int kind, int slot, int pos)
{
    for (int i = 0; i < env->step->head.n_edits; i++) {
        const struct step_edit *e = &env->step->edit[i];
        if (e->kind == kind && e->slot == slot && e->at == pos / PAGE) return e->page;
    }
    return -1;
}

/* First page of the sequence that some row can see, or that the commit reaches. */
static int first_page(const struct step_seq *s, int window)
{
    int low = window ? s->past - s->n_commit - window : 0;
    return low > 0 ? low / PAGE : 0;
}

/* Edits of one kind: all pages of all sequences, ids scattered after the banks. */
static void make_table(struct case_env *env, int kind)
{
    struct step *s = env->step;
    int first = s->head.n_edits, next = env->n_slots;
    for (int i = 0; i < s->head.n_seqs; i++) {
        const struct step_seq *q = &s->seq[i];
        int end = q->past + (s->head.wide ? q->n_rows : 0);
        for (int at = first_page(q, env->kv.kind[kind].window); at * PAGE < end; at++) {
            s->edit[s->head.n_edits++] = (struct step_edit){ .kind = kind, .slot = q->slot, .at = at,
                                                             .page = next++ };
            if (at + 1 > env->max_pages) env->max_pages = at + 1;
        }
    }
    for (int i = s->head.n_edits - 1; i > first; i--) {
        int j = first + (int)(case_random(env) % (unsigned)(i - first + 1)), page = s->edit[i].page;
        s->edit[i].page = s->edit[j].page;
        s->edit[j].page = page;
    }
    env->n_pages[kind] = next + 1;              /* one that nobody uses */
}

static void fill_head(struct case_env *env, uint32_t format, int dim, uint8_t *block, float *row)
{
    for (int pos = 0; pos < PAGE; pos++) {
        for (int i = 0; i < dim; i++) row[i] = case_normal(env);
        kv_encode(format, dim, block, pos, row);
    }
}

/* Position `pos` of a page and all later ones hold large values: whoever reads them shows. */
static void spoil_head(struct case_env *env, uint32_t format, int dim, uint8_t *block, int pos, float *row)
{
    for (; pos < PAGE; pos++) {
        for (int i = 0; i < dim; i++) row[i] = 1000 * case_normal(env);
        kv_encode(format, dim, block, pos, row);
    }
}

/* Fills one layer's part of a page; positions from `valid` on are spoiled. */
static void fill_layer(struct case_env *env, const struct kv_layer *y, uint8_t *page, int valid, float *row)
{
    for (int h = 0; h < y->kv_heads; h++) {
        fill_head(env, y->k_format, y->k_dim, page + kv_k_at(y, h), row);
        fill_head(env, y->v_format, y->v_dim, page + kv_v_at(y, h), row);
        if (valid >= PAGE) continue;
        spoil_head(env, y->k_format, y->k_dim, page + kv_k_at(y, h), valid, row);
        spoil_head(env, y->v_format, y->v_dim, page + kv_v_at(y, h), valid, row);
    }
}

/* Committed positions of the page: banks hold 64 good rows, pages what their sequence has of them. */
static int valid_positions(const struct case_env *env, int kind, int page)
{
    if (page < env->n_slots) return PAGE;
    for (int i = 0; i < env->step->head.n_edits; i++) {
        const struct step_edit *e = &env->step->edit[i];
        if (e->kind != kind || e->page != page) continue;
        for (int j = 0; j < env->step->head.n_seqs; j++) {
            const struct step_seq *q = &env->step->seq[j];
            int n = q->past - q->n_commit - e->at * PAGE;
            if (q->slot == e->slot) return n < 0 ? 0 : n;
        }
    }
    return 0;
}

/* Page `page` of a pool of recurrent layers. A state that nobody may read, because its sequence begins, holds large
 * values; decays are below 1. */
static void fill_state(struct case_env *env, int pool, int page)
{
    float scale = 0.5f;
    for (int i = 0; i < env->step->head.n_seqs; i++) {
        const struct step_seq *q = &env->step->seq[i];
        if (pool == KV_STATE && q->slot == page && q->past == q->n_commit) scale = 1000;
    }
    uint64_t bytes = env->kv.kind[pool].page_bytes;
    float *at = (float *)(void *)(env->pages[pool] + (uint64_t)page * bytes);
    for (uint64_t i = 0; i < bytes / sizeof *at; i++) at[i] = scale * case_normal(env);
    for (int l = 0; pool == KV_JOURNAL && l < env->kv.n_layers; l++) {
        const struct kv_layer *y = &env->kv.layer[l];
        if (y->kind != KV_STATE) continue;
        float *row = at + y->journal / sizeof *at;
        float *keys = row + kv_journal_at(&y->state, JOURNAL_KEY);
        float *decays = row + kv_journal_at(&y->state, JOURNAL_DECAY);
        for (uint64_t i = 0; i < NARROW_ROWS * kv_journal_cols(&y->state, JOURNAL_KEY); i++)
            keys[i] *= 2 / sqrtf((float)y->state.k_dim);
        for (uint64_t i = 0; i < NARROW_ROWS * kv_journal_cols(&y->state, JOURNAL_DECAY); i++)
            decays[i] = (float)(case_random(env) % 1024) / 1024;
    }
}

static luce_status case_states(struct case_env *env, luce_error *err)
{
    for (int pool = KV_STATE; pool <= KV_JOURNAL && kv_recurrent(&env->kv); pool++) {
        env->n_pages[pool] = env->n_slots + (pool == KV_STATE);     /* one checkpoint that nobody uses */
        env->pages[pool] = mem_aligned((uint64_t)env->n_pages[pool] * env->kv.kind[pool].page_bytes, 64);
        if (!env->pages[pool]) return fail(err, LUCE_E_NOMEM, "out of memory for the states of a test case");
        for (int page = 0; page < env->n_pages[pool]; page++) fill_state(env, pool, page);
    }
    return LUCE_OK;
}

luce_status case_pages(struct case_env *env, luce_error *err)
{
    float *row = mem_array(4096, sizeof *row);
    if (!row) return fail(err, LUCE_E_NOMEM, "out of memory for a test case");
    env->max_pages = 1;
    for (int kind = 0; kind < env->kv.n_kinds; kind++) {
        make_table(env, kind);
        uint64_t bytes = env->kv.kind[kind].page_bytes;
        env->pages[kind] = mem_aligned((uint64_t)env->n_pages[kind] * bytes, 64);
        if (!env->pages[kind]) {
            mem_free(row);
            return fail(err, LUCE_E_NOMEM, "out of memory for the pages of a test case");
        }
        for (int page = 0; page < env->n_pages[kind]; page++)
            for (int l = 0; l < env->kv.n_layers; l++)
                if (env->kv.layer[l].kind == kind)
                    fill_layer(env, &env->kv.layer[l], env->pages[kind] + (uint64_t)page * bytes,
                               valid_positions(env, kind, page), row);
    }
    mem_free(row);
    return case_states(env, err);
}
