/* device/check_rig.c - see check_rig.h. */
#include "device/check_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "quant/quant.h"

static luce_status open_cache(struct rig *r, luce_error *err)
{
    const struct case_env *env = r->env;
    if (!env->kv.n_layers) return LUCE_OK;
    struct cache_params p = { .layout = &env->kv, .n_slots = env->n_slots };
    p.n_pages[KV_STATE] = env->n_pages[KV_STATE];
    for (int i = 0; i < env->kv.n_kinds; i++) {
        p.n_pages[i] = env->n_pages[i];
        p.max_pages[i] = env->max_pages + 1;
    }
    return r->d->fns->cache_open(r->d, &r->cache, &p, err);
}

luce_status rig_open(struct rig *r, struct device *d, struct case_env *env, luce_error *err)
{
    *r = (struct rig){ .d = d, .env = env };
    luce_status st = case_record(env, &r->tape, device_target(d), &r->out, err);
    for (int i = 0; !st && i < env->n_weights; i++) {
        st = d->fns->upload(d, env->weight[i], err);
        if (!st) r->n_uploaded++;
    }
    if (!st) st = open_cache(r, err);
    if (st) rig_close(r);
    return st;
}

void rig_close(struct rig *r)
{
    if (!r->d) return;
    if (r->cache) r->d->fns->cache_close(r->d, r->cache);
    for (int i = 0; i < r->n_uploaded; i++) r->d->fns->release(r->d, r->env->weight[i]);
    tape_drop(&r->tape);
    *r = (struct rig){ 0 };
}

luce_status rig_compile(struct rig *r, struct rig_program *p, int n, bool wide, luce_error *err)
{
    *p = (struct rig_program){ 0 };
    int room = 1;
    while (room < n) room *= 2;
    struct bucket b = { .class = wide ? STEP_WIDE : STEP_NARROW };
    b.rows[DOM_ROWS] = room;
    b.rows[DOM_OUT] = room < STEP_OUTS ? room : STEP_OUTS;
    b.rows[DOM_SEQS] = room < STEP_SEQS ? room : STEP_SEQS;
    luce_status st = plan_make(&p->plan, &r->tape, b, err);
    if (!st) st = r->d->fns->compile(r->d, &p->program, &r->tape, &p->plan, r->cache, err);
    if (st) rig_program_close(r, p);
    return st;
}

void rig_program_close(struct rig *r, struct rig_program *p)
{
    if (p->program) r->d->fns->program_close(r->d, p->program);
    plan_drop(&p->plan);
    *p = (struct rig_program){ 0 };
}

luce_status rig_fill(struct rig *r, luce_error *err)
{
    const struct case_env *env = r->env;
    for (int kind = 0; kind < KV_POOLS; kind++)
        for (int page = 0; page < env->n_pages[kind]; page++) {
            const uint8_t *bytes = env->pages[kind] + (uint64_t)page * env->kv.kind[kind].page_bytes;
            luce_status st = r->d->fns->page_write(r->d, r->cache, kind, page, bytes, err);
            if (st) return st;
        }
    return LUCE_OK;
}

static luce_status poison(struct rig *r, struct rig_program *p, int n, uint32_t *room, luce_error *err)
{
    int cols = tape_shape(&r->tape, r->out).cols;
    for (size_t i = 0; i < (size_t)n * (size_t)cols; i++) room[i] = 0x7fc00000;    /* NaN */
    return r->d->fns->write(r->d, p->program, r->out, 0, n, room, err);
}

int rig_out_rows(const struct rig *r, const struct step *s)
{
    return tape_shape(&r->tape, r->out).rows == DOM_OUT ? s->head.n_out : s->head.n_rows;
}

luce_status rig_run(struct rig *r, struct rig_program *p, const struct step *s, int first, int n, void *out,
                    luce_error *err)
{
    const struct case_env *env = r->env;
    int n_out = rig_out_rows(r, s);
    luce_status st = poison(r, p, n_out, out, err);
    for (int i = 0; !st && i < env->n_inputs; i++) {
        const struct case_input_rows *in = &env->input[i];
        st = r->d->fns->write(r->d, p->program, in->val, 0, n, in->rows + (size_t)first * (size_t)in->cols, err);
    }
    if (!st) st = r->d->fns->run(r->d, p->program, s, NULL, NULL, err);
    if (!st) st = r->d->fns->read(r->d, p->program, &(struct rows_read){ r->out, 0, n_out, out, 0, false, 0 }, 1, err);
    return st;
}

double rig_tolerance(const struct rig *r)
{
    double sum = 0;
    for (int i = 0; i < r->tape.n_calls; i++) sum += r->d->fns->tolerance(r->d, &r->tape, &r->tape.calls[i]);
    return sum;
}

void check_report(struct check_walk *w, const char *what, double nmse, double allowed)
{
    char label[sizeof w->label + sizeof(luce_error)];
    snprintf(label, sizeof label, "%s%s%s", w->label, *what ? ": " : "", what);
    struct check_result r = { .op = w->op, .label = label, .nmse = isnan(nmse) ? (double)INFINITY : nmse,
                              .allowed = allowed };
    r.passed = r.nmse <= allowed;
    if (!r.passed) ++*w->n_failed;
    if (w->fn) w->fn(w->context, &r);
}

static void describe(struct check_walk *w, const struct op_case *c, const struct format *f)
{
    int n = snprintf(w->label, sizeof w->label, "%s%s%s%d row%s,", c->each_format ? f->name : "",
                     c->each_format ? " " : "", c->wide ? "wide " : "", c->n_rows, c->n_rows == 1 ? "" : "s");
    for (int i = 0; i < 8 && n < 128; i++) n += snprintf(w->label + n, sizeof w->label - (size_t)n, " %d", c->p[i]);
    if (c->n_seqs) n += snprintf(w->label + n, sizeof w->label - (size_t)n, ", %d sequences", c->n_seqs);
    if (c->past) n += snprintf(w->label + n, sizeof w->label - (size_t)n, ", past %d", c->past);
    if (*c->label) snprintf(w->label + n, sizeof w->label - (size_t)n, ", %s", c->label);
}

/* Matrices of the op have the case's format; a case that cannot be recorded in one is left out. */
static luce_status run_case(struct check_walk *w, const struct op_case *c, const struct format *f, uint64_t seed,
                            case_fn run, luce_error *err)
{
    struct case_env *env;
    describe(w, c, f);
    luce_status st = case_open(&env, c, f->id, seed, err);
    if (st) return st;
    luce_error why = { 0 };
    st = run(w, env, &why);
    case_close(env);
    if (st == LUCE_E_UNSUPPORTED) {
        if (!c->each_format && !c->block) check_report(w, why.text, (double)INFINITY, 0);
        return LUCE_OK;
    }
    return st ? fail(err, st, "check of %s (%s): %s", w->op, w->label, why.text) : LUCE_OK;
}

static luce_status run_formats(struct check_walk *w, const struct op_case *c, uint64_t seed, case_fn run,
                               luce_error *err)
{
    if (!c->each_format) return run_case(w, c, format_find(c->format), seed, run, err);
    const struct format *f;
    luce_status st = LUCE_OK;
    const int sample = w->params->sample;
    for (size_t i = 0; !st && (f = format_at(i)); i++) {
        if (!f->decode || c->p[0] <= 0 || (sample > 1 && hash_u64(~seed + i) % (uint64_t)sample)) continue;
        st = run_case(w, c, f, hash_u64(seed + i), run, err);
    }
    return st;
}

/* Quick: of each op the first case of several narrow rows in every format, and every third of the
 * small others. */
static bool selected(const struct check_params *p, const struct op_case *c, int i, int *n_formats)
{
    if (!p->quick) return true;
    if (c->each_format) return c->n_rows > 1 && !c->wide && (*n_formats)++ == 0;
    return i % 3 == 1 && c->n_rows <= 33;
}

luce_status check_walk(struct check_walk *w, case_fn run, luce_error *err)
{
    luce_status st = LUCE_OK;
    *w->n_failed = 0;
    for (int op = 0; !st && op < OP_COUNT; op++) {
        w->op = op_defs[op]->name;
        if (w->params->only && !strstr(w->op, w->params->only)) continue;
        struct case_list list = { 0 };
        op_defs[op]->cases(&list);
        if (list.failed) st = fail(err, LUCE_E_NOMEM, "out of memory for the cases of %s", w->op);
        int n_formats = 0;
        for (int i = 0; !st && i < list.n; i++)
            if (selected(w->params, &list.cases[i], i, &n_formats))
                st = run_formats(w, &list.cases[i], hash_u64(w->params->seed + (uint64_t)(op * 1000 + i)), run, err);
        case_list_drop(&list);
    }
    return st;
}
