/* The CPU's strip products called as they are: every integer format, number of columns and strips, with whole blocks of
 * k and parts of one, gives the bits of portable C with every instruction set. */
#include <string.h>

#include "base/mem.h"
#include "device/cpu/group.h"
#include "quant/quant.h"
#include "tests/cpu_sets.h"
#include "tests/test.h"

enum { IN_MOST = 3 * SUPER, OUT = 4 * LANES, ROWS = PRODUCT_COLS + 3, FIRST = 2 };

static const uint32_t formats[] = { Q_Q4_0, Q_Q4_1, Q_Q5_0, Q_Q5_1, Q_Q8_0, Q_Q4_K, Q_Q5_K, Q_Q6_K, Q_IQ4_NL,
                                    Q_IQ4_XS, Q_MXFP4 };

struct set {
    struct device *d;
    float *y, *scratch;
};

static void fill_x(struct xblock *x, int n)
{
    for (int i = 0; i < n; i++)
        for (int g = 0; g < GROUPS; g++) {
            int sum[2] = { 0 };
            for (int k = 0; k < GROUP; k++) sum[k / 16] += x[i].q[g * GROUP + k] = (int8_t)(test_random() % 255 - 127);
            group_finish(x + i, g, (float)(test_random() % (1u << 22)) * 0x1p-28f, sum[0], sum[1]);
        }
}

/* Columns of a step with more rows than these. */
static void multiply(struct set *set, const struct packed *w, const struct xblock *x, int strips, int cols)
{
    const struct kernels *k = &((struct cpu *)set->d)->kernels;
    struct product p = { .w = w, .strip = w->data, .n_strips = strips, .then = w->data, .x = x, .n_rows = ROWS,
                         .first_col = FIRST, .n_cols = cols, .y = set->y, .scratch = set->scratch };
    memset(set->y, 0xff, PRODUCT_STRIPS * PRODUCT_COLS * LANES * sizeof *set->y);
    if (k->enter) k->enter();
    kernels_product(k, w->format->id)(&p);
    if (k->leave) k->leave();
}

static void compare(struct set *sets, const struct packed *w, const struct xblock *x)
{
    size_t all = PRODUCT_STRIPS * PRODUCT_COLS * LANES * sizeof(float);
    for (int cols = 1; cols <= PRODUCT_COLS; cols++)
        for (int strips = 1; strips <= PRODUCT_STRIPS; strips++) {
            multiply(&sets[0], w, x, strips, cols);
            for (int i = 1; cpu_set_at(i); i++) {
                multiply(&sets[i], w, x, strips, cols);
                CHECK(!memcmp(sets[i].y, sets[0].y, all), "%s: %s of %d k, %d columns, %d strips", cpu_set_at(i),
                      w->format->name, (int)w->in, cols, strips);
            }
        }
}

TEST(cpu_products_have_the_same_bits_with_any_instruction_set)
{
    struct set sets[ISA_COUNT + 1] = { 0 };
    luce_error err = { 0 };
    struct xblock *x = mem_array(IN_MOST / SUPER * ROWS, sizeof *x);
    CHECK(x != NULL);
    fill_x(x, IN_MOST / SUPER * ROWS);
    for (int i = 0; cpu_set_at(i); i++) {
        CHECK_OK(cpu_set_open(&sets[i].d, cpu_set_at(i), 1, &err), err);
        sets[i].y = mem_aligned(PRODUCT_STRIPS * PRODUCT_COLS * LANES * sizeof(float), 4096);
        sets[i].scratch = mem_aligned(PRODUCT_SCRATCH * sizeof(float), 4096);
    }
    for (size_t f = 0; f < COUNT(formats); f++) {
        static const int ins[] = { GROUP, 7 * GROUP, SUPER, SUPER + 2 * GROUP, IN_MOST };
        for (size_t k = 0; k < COUNT(ins); k++) {
            if (ins[k] % format_find(formats[f])->block) continue;
            struct weight w = { .name = "w", .dim = { (uint64_t)ins[k], OUT, 1 }, .type = formats[f], .seed = f + 1,
                                .synthetic_std = 0.05f };
            CHECK_OK(sets[0].d->fns->upload(sets[0].d, &w, &err), err);
            compare(sets, packed_of(&w), x);
            sets[0].d->fns->release(sets[0].d, &w);
        }
    }
    for (int i = 0; cpu_set_at(i); i++) {
        device_close(sets[i].d);
        mem_free(sets[i].y);
        mem_free(sets[i].scratch);
    }
    mem_free(x);
}
