/* The CPU device: every op, format and instruction set against the references, bits that do not depend
 * on company, threads or instruction set, and allocations that fail. */
#include <stdlib.h>

#include "device/check.h"
#include "ops/ops.h"
#include "tests/test.h"

static const char *const isas[] = { "portable", "avx2", "avx512" };

static struct device *open_with(const char *isa, int n_threads)
{
    struct device *d = NULL;
    luce_error err = { 0 };
    CHECK_OK(device_open(&d, "cpu", &(struct device_params){ .isa = isa, .n_threads = n_threads }, &err), err);
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
    for (size_t i = 0; i < COUNT(isas); i++) {
        struct device *d = open_with(isas[i], 2);
        int failed = -1;
        luce_error err = { 0 };
        struct check_params p = { .seed = test_random(), .quick = i == 0 };
        if (d) CHECK_OK(check_device(d, &p, report, (void *)isas[i], &failed, &err), err);
        CHECK_EQ(failed, 0);
        device_close(d);
    }
}

TEST(cpu_rows_do_not_depend_on_their_company)
{
    for (size_t i = 0; i < COUNT(isas); i++) {
        struct device *d = open_with(isas[i], i == 2 ? 3 : 1);
        int failed = -1;
        luce_error err = { 0 };
        struct check_params p = { .seed = test_random(), .quick = i == 0 };
        if (d) CHECK_OK(check_width_independence(d, &p, report, (void *)isas[i], &failed, &err), err);
        CHECK_EQ(failed, 0);
        device_close(d);
    }
}
