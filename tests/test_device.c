/* The CPU device: every op, format and instruction set against the references, bits that do not depend
 * on company, threads or instruction set, and allocations that fail. */
#include <stdlib.h>

#include "device/check.h"
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
