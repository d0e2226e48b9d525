/* cli/doctor.c - luce doctor: checks every kernel of a device against the float64 definitions of the ops,
 * with random inputs, and that a row's bits do not depend on its company. A fast subset without --all.
 * One line an op; each case that fails has a line of its own. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/options.h"
#include "device/check.h"
#include "ops/ops.h"

enum { SHOWN = 20 };            /* failures of an op that are printed */

struct tally {
    struct buf *out;
    const char *op;             /* of the results so far */
    int n, n_failed;
    double worst;               /* largest share of what is allowed */
    int total_failed;
};

static void flush_op(struct tally *t)
{
    if (!t->op) return;
    buf_printf(t->out, "  %-9s %6d cases  %s", t->op, t->n, t->n_failed ? "FAILED" : "ok");
    if (t->n_failed) buf_printf(t->out, " (%d)", t->n_failed);
    else if (t->worst > 0) buf_printf(t->out, ", largest error %.0f%% of what is allowed", 100 * t->worst);
    buf_add_char(t->out, '\n');
    t->op = NULL;
    t->n = t->n_failed = 0;
    t->worst = 0;
}

static void note(void *context, const struct check_result *r)
{
    struct tally *t = context;
    if (t->op && strcmp(t->op, r->op)) flush_op(t);
    t->op = r->op;
    t->n++;
    if (r->passed) {
        if (r->allowed > 0 && r->nmse / r->allowed > t->worst) t->worst = r->nmse / r->allowed;
        return;
    }
    t->total_failed++;
    if (t->n_failed++ < SHOWN)
        buf_printf(t->out, "  %s %s: error %.3g, allowed %.3g\n", r->op, r->label, r->nmse, r->allowed);
}

static luce_status check(struct device *d, const struct options *o, struct tally *t, luce_error *err)
{
    struct check_params p = { .seed = o->seed.given ? o->seed.value : (uint64_t)(clock_seconds() * 1e6),
                              .only = o->n_operands ? o->operands[0] : NULL, .quick = !o->all };
    int failed = 0;
    double start = clock_seconds();
    buf_printf(t->out, "against the definitions (seed %llu)\n", (unsigned long long)p.seed);
    luce_status st = check_device(d, &p, note, t, &failed, err);
    flush_op(t);
    buf_add_text(t->out, "alone and in company, bit for bit\n");
    if (!st) st = check_width_independence(d, &p, note, t, &failed, err);
    flush_op(t);
    buf_printf(t->out, "%.1f s\n", clock_seconds() - start);
    return st;
}

static luce_status doctor_one(const struct options *o, const char *id, struct tally *t, luce_error *err)
{
    struct device *d = NULL;
    struct device_info info = { 0 };
    luce_status st = device_open(&d, id, &(struct device_params){ .n_threads = (int)o->threads }, err);
    if (!st) st = d->fns->info(d, &info, err);
    if (!st) buf_printf(t->out, "%s  %s, %s\n", info.id, info.name, info.driver);
    if (!st) st = check(d, o, t, err);
    device_close(d);
    return st;
}

static luce_status check_name(const char *name, luce_error *err)
{
    struct buf known = { 0 };
    for (int i = 0; i < OP_COUNT; i++) {
        if (strstr(op_defs[i]->name, name)) {
            buf_drop(&known);
            return LUCE_OK;
        }
        buf_printf(&known, "%s%s", i ? ", " : "", op_defs[i]->name);
    }
    luce_status st = fail(err, LUCE_E_ARG, "doctor: no op '%s'; known: %s", name, buf_text(&known));
    buf_drop(&known);
    return st;
}

luce_status doctor_run(const struct options *o, luce_error *err)
{
    struct buf out = { 0 };
    struct tally t = { .out = &out };
    luce_status st = o->n_operands ? check_name(o->operands[0], err) : LUCE_OK;
    if (st) return st;
    if (o->device && strcmp(o->device, "auto")) {
        st = doctor_one(o, o->device, &t, err);
    } else {
        for (size_t k = 0; device_kind_at(k) && !st; k++)
            for (int i = 0, n = device_kind_at(k)->count(); i < n && !st; i++) {
                char id[32];
                snprintf(id, sizeof id, "%s:%d", device_kind_at(k)->name, i);
                st = doctor_one(o, id, &t, err);
            }
    }
    luce_error ignored;
    luce_status written = output_write(&out, st ? &ignored : err);      /* what was found, also before a failure */
    buf_drop(&out);
    if (st || written) return st ? st : written;
    if (!t.total_failed) return LUCE_OK;
    return fail(err, LUCE_E_NUMERIC,
                "doctor: %d cases failed; do not use this device with this build, and report the "
                "lines above", t.total_failed);
}
