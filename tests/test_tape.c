/* tests/test_tape.c - recording, planning, and the layout and rounding of the cache. */
#include <math.h>
#include <stdlib.h>

#include "quant/quant.h"
#include "tape/tape.h"
#include "test.h"

static const struct target all = { 0 };

static struct val push(struct tape *t, struct val a, struct val b, struct shape s)
{
    struct call c = { .op = 0, .layer = -1, .in = { a, b }, .n_in = (a.id != 0) + (b.id != 0), .n_out = 1 };
    c.shape[0] = s;
    return tape_push(t, &c);
}

TEST(tape_records_calls_and_lives)
{
    struct tape t;
    luce_error err = { 0 };
    tape_begin(&t, all, NULL);
    struct shape s = { DOM_ROWS, DT_F32, 8 };
    struct val x = tape_input(&t, "x", s), a = push(&t, x, (struct val){ 0 }, s), b = push(&t, a, x, s);
    tape_keep(&t, b, "y");
    CHECK_OK(tape_end(&t, &err), err);
    CHECK_EQ(t.n_calls, 2);
    CHECK_EQ(t.values[x.id].producer, -1);
    CHECK_EQ(t.values[x.id].last_use, 2);       /* inputs stay readable */
    CHECK_EQ(t.values[a.id].producer, 0);
    CHECK_EQ(t.values[a.id].last_use, 1);
    CHECK_EQ(t.values[b.id].last_use, 2);
    CHECK_STR(t.values[b.id].name, "y");
    CHECK_EQ(tape_shape(&t, b).cols, 8);
    CHECK_EQ(tape_shape(&t, (struct val){ 0 }).cols, 0);
    tape_drop(&t);
}

TEST(tape_copies_attributes_and_pads_them_with_zeros)
{
    struct tape t;
    tape_begin(&t, all, NULL);
    char attr[5] = "abcd";
    struct call c = { .n_out = 1, .shape = { { DOM_ROWS, DT_F32, 1 } }, .attr = attr, .attr_size = 5 };
    tape_push(&t, &c);
    attr[0] = 'z';
    CHECK_STR((const char *)t.calls[0].attr, "abcd");
    for (int i = 4; i < 16; i++) CHECK_EQ(((const char *)t.calls[0].attr)[i], 0);
    tape_drop(&t);
}

TEST(tape_keeps_its_first_error_and_goes_dead)
{
    struct tape t;
    luce_error err = { 0 };
    tape_begin(&t, all, NULL);
    struct shape s = { DOM_ROWS, DT_F32, 8 };
    struct val x = tape_input(&t, "x", s);
    CHECK_EQ(tape_fail(&t, "norm: %s", "first").id, 0);
    tape_fail(&t, "second");
    CHECK(tape_dead(&t));
    CHECK_EQ(push(&t, x, x, s).id, 0);
    CHECK_EQ(tape_input(&t, "y", s).id, 0);
    CHECK_EQ(t.n_calls, 0);
    CHECK_EQ(tape_end(&t, &err), LUCE_E_FORMAT);
    CHECK_STR(err.text, "norm: first");
    tape_drop(&t);

    tape_begin(&t, all, NULL);
    push(&t, (struct val){ 7 }, (struct val){ 0 }, s);
    CHECK(tape_dead(&t));
    CHECK(strstr(t.error.text, "not a value") != NULL, "%s", t.error.text);
    tape_drop(&t);
}

/* A tape of random calls: each reads up to two earlier values, some results are kept. */
static void random_tape(struct tape *t, int n)
{
    tape_begin(t, all, NULL);
    for (int i = 0; i < n; i++) {
        struct shape s = { (enum domain)(test_random() % DOM_COUNT), DT_F32, 1 + (int)(test_random() % 600) };
        int have = t->n_values > 1 ? t->n_values - 1 : 0;
        if (!have || test_random() % 12 == 0) {
            tape_input(t, "x", s);
            continue;
        }
        /* mostly recent values, sometimes old ones */
        struct val a = { 1 + (int)(test_random() % (unsigned)have) }, b = { have };
        struct val y = push(t, a, test_random() % 2 ? b : (struct val){ 0 }, s);
        if (test_random() % 10 == 0) tape_keep(t, y, "kept");
    }
}

static bool together(const struct tape *t, int a, int b)
{
    const struct value *x = &t->values[a], *y = &t->values[b];
    int x_end = x->keep ? t->n_calls : x->last_use, y_end = y->keep ? t->n_calls : y->last_use;
    return x->producer <= y_end && y->producer <= x_end;
}

static uint64_t plan_bytes(const struct plan *p, const struct tape *t, int id)
{
    return (uint64_t)p->bucket.rows[t->values[id].shape.rows] * shape_row_bytes(t->values[id].shape);
}

TEST(plan_never_lets_values_that_live_together_share_bytes)
{
    for (int round = 0; round < 40; round++) {
        struct tape t;
        luce_error err = { 0 };
        random_tape(&t, 5 + (int)(test_random() % 150));
        CHECK_OK(tape_end(&t, &err), err);
        struct bucket b = { .rows = { 8, 4, 0, 2 } };
        struct plan p, again;
        CHECK_OK(plan_make(&p, &t, b, &err), err);
        CHECK_OK(plan_make(&again, &t, b, &err), err);
        CHECK_EQ(p.bytes, again.bytes);
        CHECK_EQ(p.bytes % 256, 0);
        for (int i = 1; i < t.n_values; i++) {
            CHECK_EQ(p.offset[i], again.offset[i]);
            CHECK_EQ(p.offset[i] % 256, 0);
            uint64_t n = plan_bytes(&p, &t, i);
            CHECK(p.offset[i] + n <= p.bytes);
            for (int j = 1; j < i; j++) {
                uint64_t m = plan_bytes(&p, &t, j);
                bool apart = p.offset[i] + n <= p.offset[j] || p.offset[j] + m <= p.offset[i] || !n || !m;
                CHECK(apart || !together(&t, i, j), "values %d and %d", i, j);
            }
        }
        plan_drop(&p);
        plan_drop(&again);
        tape_drop(&t);
    }
}

TEST(plan_reuses_bytes_of_dead_values)
{
    struct tape t;
    luce_error err = { 0 };
    tape_begin(&t, all, NULL);
    struct shape s = { DOM_ROWS, DT_F32, 64 };
    struct val x = tape_input(&t, "x", s);
    for (int i = 0; i < 50; i++) x = push(&t, x, (struct val){ 0 }, s);
    CHECK_OK(tape_end(&t, &err), err);
    struct plan p;
    CHECK_OK(plan_make(&p, &t, (struct bucket){ .rows = { 4 } }, &err), err);
    CHECK_EQ(p.bytes, 3 * 1024);                /* the input, and two that take turns */
    plan_drop(&p);
    CHECK_OK(plan_make(&p, &t, (struct bucket){ .rows = { 1 } }, &err), err);
    CHECK_EQ(p.bytes, 4 * 256);                 /* three: one may be made where the next is read */
    plan_drop(&p);
    tape_drop(&t);
}

TEST(plan_refuses_sizes_that_overflow)
{
    struct tape t;
    luce_error err = { 0 };
    tape_begin(&t, all, NULL);
    tape_input(&t, "x", (struct shape){ DOM_ROWS, DT_F32, INT32_MAX });
    struct plan p;
    CHECK_EQ(plan_make(&p, &t, (struct bucket){ .rows = { INT32_MAX } }, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "too large") != NULL, "%s", err.text);
    CHECK_EQ(p.offset, NULL);
    tape_drop(&t);
}

TEST(tape_and_plan_survive_any_failed_allocation)
{
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct tape t;
        struct plan p = { 0 };
        luce_error err = { 0 };
        mem_fail_after(n);
        tape_begin(&t, all, NULL);
        struct shape s = { DOM_ROWS, DT_F32, 8 };
        float attr = 1;
        struct val x = tape_input(&t, "x", s);
        for (int i = 0; i < 100; i++)
            x = tape_push(&t, &(struct call){ .n_in = 1, .in = { x }, .n_out = 1, .shape = { s },
                                              .attr = &attr, .attr_size = sizeof attr });
        tape_keep(&t, x, "y");
        luce_status st = tape_end(&t, &err);
        if (!st) st = plan_make(&p, &t, (struct bucket){ .rows = { 1 } }, &err);
        mem_fail_never();
        plan_drop(&p);
        tape_drop(&t);
        CHECK_EQ(mem_live(), before);
        if (st == LUCE_OK) break;
        CHECK_EQ(st, LUCE_E_NOMEM);
    }
}

TEST(kv_layout_places_layers_of_a_kind_one_after_the_other)
{
    struct kv_layout *l = mem_zero(sizeof *l);
    luce_error err = { 0 };
    CHECK_OK(kv_layout_add(l, 2, 64, 64, 0, &err), err);
    CHECK_OK(kv_layout_add(l, 1, 256, 128, 512, &err), err);
    CHECK_OK(kv_layout_add(l, 2, 64, 64, 0, &err), err);
    CHECK_OK(kv_layout_finish(l, Q_F16, Q_Q8_0, &err), err);
    CHECK_EQ(l->n_kinds, 2);
    CHECK_EQ(l->kind[1].window, 512);
    CHECK_EQ(l->layer[0].k_head, 64 * 64 * 2);
    CHECK_EQ(l->layer[0].v_head, 64 * 64 + 64 * 2 * 2);
    CHECK_EQ(l->layer[2].offset, 2 * (64 * 64 * 2 + 64 * 68));
    CHECK_EQ(l->kind[0].page_bytes, 2 * l->layer[2].offset);
    CHECK_EQ(l->layer[1].offset, 0);
    CHECK_EQ(kv_v_at(&l->layer[2], 1), l->layer[2].offset + 2 * l->layer[2].k_head + l->layer[2].v_head);
    for (int i = 0; i < 3; i++) CHECK_EQ(l->layer[i].k_head % 64 + l->layer[i].v_head % 64, 0);
    CHECK_OK(kv_layout_finish(l, Q_Q4_0, Q_Q4_0, &err), err);   /* formats may be chosen again */
    CHECK_EQ(l->layer[2].offset, 2 * 2 * 64 * 36);
    mem_free(l);
}

TEST(kv_layout_refuses_what_it_cannot_hold)
{
    struct kv_layout *l = mem_zero(sizeof *l);
    luce_error err = { 0 };
    CHECK_EQ(kv_layout_add(l, 0, 64, 64, 0, &err), LUCE_E_FORMAT);
    CHECK_OK(kv_layout_add(l, 2, 40, 40, 0, &err), err);
    CHECK_EQ(kv_layout_finish(l, Q_Q4_K, Q_F16, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "key format 'q4_K'") && strstr(err.text, "f16, bf16, q8_0, q4_0"), "%s", err.text);
    CHECK_EQ(kv_layout_finish(l, Q_F16, Q_Q8_0, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "value format 'q8_0'") && strstr(err.text, "have 40"), "%s", err.text);
    CHECK_EQ(kv_layout_finish(l, 9999, Q_F16, &err), LUCE_E_ARG);
    for (int i = 1; i < KV_MAX_KINDS; i++) CHECK_OK(kv_layout_add(l, 1, 64, 64, i, &err), err);
    CHECK_EQ(kv_layout_add(l, 1, 64, 64, 99, &err), LUCE_E_UNSUPPORTED);
    while (l->n_layers < KV_MAX_LAYERS) CHECK_OK(kv_layout_add(l, 1, 64, 64, 0, &err), err);
    CHECK_EQ(kv_layout_add(l, 1, 64, 64, 0, &err), LUCE_E_UNSUPPORTED);
    mem_free(l);
}

/* A position of a head block has the values of the format's own encoder, and touches no other. */
static void check_rounding(uint32_t format, int dim)
{
    const struct format *f = format_find(format);
    size_t bytes = (size_t)kv_scales_at(format, dim) + (kv_scales_at(format, dim) ? (size_t)(dim / 32) * 128 : 0);
    if (!kv_scales_at(format, dim)) bytes = (size_t)kv_row_bytes(format, dim) * PAGE;
    uint8_t *block = mem_alloc(bytes), *before = mem_alloc(bytes);
    float x[256], want[256], got[256];
    uint8_t encoded[1024];
    memset(block, 0x5a, bytes);
    for (int pos = 0; pos < PAGE; pos += 21) {
        memcpy(before, block, bytes);
        for (int i = 0; i < dim; i++) x[i] = (float)test_normal();
        f->encode(x, encoded, dim, NULL);
        f->decode(encoded, want, dim);
        kv_encode(format, dim, block, pos, x);
        kv_decode(format, dim, block, pos, got);
        for (int i = 0; i < dim; i++) CHECK(got[i] == want[i], "%s %d: %g %g", f->name, i, got[i], want[i]);
        size_t row = (size_t)kv_row_bytes(format, dim), scales = (size_t)kv_scales_at(format, dim);
        for (size_t i = 0; i < bytes; i++) {
            bool payload = i / row == (size_t)pos && (!scales || i < scales);
            bool scale = scales && i >= scales && (i - scales) / (size_t)(dim / 16) == (size_t)pos;
            if (!payload && !scale) CHECK_EQ(block[i], before[i]);
        }
    }
    mem_free(block);
    mem_free(before);
}

TEST(kv_encode_rounds_as_the_formats_do_and_writes_one_position)
{
    static const uint32_t formats[] = { Q_F16, Q_BF16, Q_Q8_0, Q_Q4_0 };
    for (size_t i = 0; i < COUNT(formats); i++) {
        check_rounding(formats[i], 32);
        check_rounding(formats[i], 96);
        check_rounding(formats[i], 256);
    }
    check_rounding(Q_F16, 24);
}

TEST(kv_q4_0_packs_elements_16_apart)
{
    float x[32] = { 0 };
    x[0] = -8;                                  /* d = 1, code 0 */
    x[16] = 3;                                  /* code 11 in the high nibble */
    uint8_t block[64 * 16 + 128] = { 0 };
    kv_encode(Q_Q4_0, 32, block, 2, x);
    CHECK_EQ(block[2 * 16], 0xb0);
    CHECK_EQ(block[2 * 16 + 1], 0x88);
    uint16_t d;
    memcpy(&d, block + 64 * 16 + 2 * 2, 2);
    CHECK_EQ(d, 0x3c00);
}

TEST(kv_layout_keeps_recurrent_layers_in_pools_of_their_own)
{
    static struct kv_layout l;
    luce_error err = { 0 };
    struct kv_state k = { .channels = 2 * 2 * 8 + 4 * 16, .taps = 4, .k_heads = 2, .v_heads = 4, .k_dim = 8, .v_dim = 16 };
    l = (struct kv_layout){ 0 };
    CHECK_OK(kv_layout_add_state(&l, &k, &err), err);
    CHECK_OK(kv_layout_add(&l, 2, 64, 64, 0, &err), err);
    CHECK_OK(kv_layout_add_state(&l, &k, &err), err);
    CHECK_OK(kv_layout_finish(&l, Q_F16, Q_F16, &err), err);
    CHECK_EQ(l.n_kinds, 1);
    CHECK(kv_recurrent(&l));
    CHECK_EQ(l.layer[1].offset, 0);
    CHECK_EQ(l.layer[2].offset, (3 * 96 + 4 * 16 * 8) * 4);
    CHECK_EQ(l.kind[KV_STATE].page_bytes, 2 * l.layer[2].offset);
    CHECK_EQ(l.layer[2].journal, 64 * (96 + 16 + 64 + 4) * 4);
    k.v_dim = 24;
    CHECK_EQ(kv_layout_add_state(&l, &k, &err), LUCE_E_UNSUPPORTED);
    CHECK(strstr(err.text, "4 value heads of 24") != NULL, "%s", err.text);
}
