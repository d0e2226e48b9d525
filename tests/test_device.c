/* The CPU device: every op, format and instruction set against the references, bits that do not depend
 * on company, threads or instruction set, and allocations that fail. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "device/check_rig.h"
#include "ops/ops.h"
#include "tests/cpu_sets.h"
#include "tests/test.h"

/* An emulated processor takes its time: some of the weight formats of each case, drawn anew each time. */
#ifdef LUCE_EMULATED_CPU
enum { SAMPLE = 12 };
#else
enum { SAMPLE = 0 };
#endif

static struct device *open_with(const char *isa, int n_threads)
{
    struct device *d = NULL;
    luce_error err = { 0 };
    CHECK_OK(cpu_set_open(&d, isa, n_threads, &err), err);
    return d;
}

static void report(void *context, const struct check_result *r)
{
    if (!r->passed)
        test_failed(__FILE__, __LINE__, "%s: %s: %s: error %g, allowed %g", (const char *)context, r->op, r->label,
                    r->nmse, r->allowed);
}

TEST(cpu_kernels_are_close_to_the_references)
{
    for (int i = 0; cpu_set_at(i); i++) {
        struct device *d = open_with(cpu_set_at(i), 2);
        int failed = -1;
        luce_error err = { 0 };
        struct check_params p = { .seed = test_random(), .quick = i == 0, .sample = i ? SAMPLE : 0 };
        if (d) CHECK_OK(check_device(d, &p, report, (void *)cpu_set_at(i), &failed, &err), err);
        CHECK_EQ(failed, 0);
        device_close(d);
    }
}

TEST(cpu_rows_do_not_depend_on_their_company)
{
    for (int i = 0; cpu_set_at(i); i++) {
        struct device *d = open_with(cpu_set_at(i), i == 2 ? 3 : 1);
        int failed = -1;
        luce_error err = { 0 };
        struct check_params p = { .seed = test_random(), .quick = i == 0, .sample = i ? SAMPLE : 0 };
        if (d) CHECK_OK(check_width_independence(d, &p, report, (void *)cpu_set_at(i), &failed, &err), err);
        CHECK_EQ(failed, 0);
        device_close(d);
    }
}

/* What a case gives on a device: the rows of its output, then all pages. */
static luce_status whole_run(struct device *d, struct case_env *env, struct buf *out, luce_error *err)
{
    struct rig r;
    struct rig_program p = { 0 };
    const struct step *s = env->step;
    luce_status st = rig_open(&r, d, env, err);
    if (st) return st;
    const size_t row_bytes = (size_t)shape_row_bytes(tape_shape(&r.tape, r.out));
    void *rows = mem_array((size_t)s->head.n_rows, row_bytes);
    if (!rows) st = fail(err, LUCE_E_NOMEM, "out of memory for the output of a test case");
    if (!st) st = rig_compile(&r, &p, step_room(s), s->head.wide, err);
    if (!st) st = rig_fill(&r, err);
    if (!st) st = rig_run(&r, &p, s, 0, s->head.n_rows, rows, err);
    if (!st) buf_add(out, rows, (size_t)rig_out_rows(&r, s) * row_bytes);
    for (int kind = 0; !st && kind < env->kv.n_kinds; kind++)
        for (int page = 0; !st && page < env->n_pages[kind]; page++) {
            const size_t bytes = env->kv.kind[kind].page_bytes;
            void *at = mem_aligned(bytes, 64);
            st = at ? d->fns->page_read(d, r.cache, kind, page, at, err) : fail(err, LUCE_E_NOMEM, "out of memory");
            if (!st) buf_add(out, at, bytes);
            mem_free(at);
        }
    if (p.program) rig_program_close(&r, &p);
    mem_free(rows);
    rig_close(&r);
    return st;
}

static struct device *simplest;
static luce_status same_bits_case(struct check_walk *w, struct case_env *env, luce_error *err)
{
    struct buf one = { 0 }, two = { 0 };
    luce_status st = whole_run(w->d, env, &one, err);
    if (!st) st = whole_run(simplest, env, &two, err);
    if (!st) check_report(w, "as with the simplest instructions",
                          !one.failed && one.len == two.len && !memcmp(one.data, two.data, one.len) ? 0 : (double)INFINITY, 0);
    buf_drop(&one);
    buf_drop(&two);
    return st;
}

/* Compilers are free in more than the sources say: each op of each instruction set. */
TEST(cpu_every_op_has_the_same_bits_with_any_instruction_set)
{
    simplest = open_with(cpu_set_at(0), 2);
    for (int i = 1; cpu_set_at(i); i++) {
        struct check_params p = { .seed = test_random(), .sample = SAMPLE ? SAMPLE : 8 };
        int failed = -1;
        luce_error err = { 0 };
        struct check_walk w = { .d = open_with(cpu_set_at(i), 1), .params = &p, .fn = report,
                                .context = (void *)(uintptr_t)cpu_set_at(i), .n_failed = &failed };
        CHECK_OK(check_walk(&w, same_bits_case, &err), err);
        CHECK_EQ(failed, 0);
        device_close(w.d);
    }
    device_close(simplest);
}
