/* tests/test_ops_shapes.c - the record functions of the ops refuse wrong shapes, in words. */
#include "ops/ops.h"
#include "quant/quant.h"
#include "test.h"

static struct weight bad_w;
static struct val bad_x;

static void norm_short(struct tape *t) { op_norm(t, bad_x, &bad_w, 0); }
static void linear_short(struct tape *t) { op_linear(t, bad_x, &bad_w, NULL); }
static void linear_type(struct tape *t)
{
    struct weight w = bad_w;
    w.dim[0] = 8;
    w.type = Q_I32;
    op_linear(t, bad_x, &w, NULL);
}
static void linear_block(struct tape *t)
{
    struct weight w = bad_w;
    w.dim[0] = 8;
    w.type = Q_Q4_K;
    op_linear(t, bad_x, &w, NULL);
}
static void linear_bias(struct tape *t)
{
    struct weight w = bad_w;
    w.dim[0] = 8;
    op_linear(t, bad_x, &w, &bad_w);
}
static void linear_residual(struct tape *t)
{
    struct weight w = bad_w;
    w.dim[0] = 8;
    op_linear_add(t, bad_x, &w, NULL, bad_x);
}
static void linear_missing(struct tape *t) { op_linear(t, bad_x, NULL, NULL); }
static void no_value(struct tape *t) { op_add(t, bad_x, (struct val){ 99 }); }
static void glu_rows(struct tape *t)
{
    struct weight gate = bad_w, up = bad_w;
    gate.dim[0] = up.dim[0] = 8;
    up.dim[1] = 6;
    op_glu(t, bad_x, &gate, &up, ACT_SILU);
}
static void gate_odd(struct tape *t) { op_gate(t, tape_input(t, "z", (struct shape){ DOM_ROWS, DT_F32, 3 }), ACT_SILU); }
static void attn_layer(struct tape *t)
{
    op_attn(t, 0, bad_x, &(struct attn_attr){ .heads = 1, .kv_heads = 1, .head_dim = 8 });
}
static void rope_heads(struct tape *t)
{
    op_rope_kv(t, 0, bad_x, &(struct qkv_weights){ 0 }, &(struct rope_kv_attr){ .heads = 3, .kv_heads = 2, .head_dim = 8 });
}
static void rope_dims(struct tape *t)
{
    struct rope_kv_attr a = { .heads = 2, .kv_heads = 2, .head_dim = 8, .rope_dims = 9, .layout = ROPE_NEOX };
    op_rope_kv(t, 0, bad_x, &(struct qkv_weights){ 0 }, &a);
}
static void conv_layer(struct tape *t) { op_short_conv(t, 0, bad_x, &bad_w); }
static void delta_layer(struct tape *t) { op_delta(t, 3, bad_x, bad_x, &bad_w, &bad_w, &(struct delta_attr){ 0 }); }
static void gated_heads(struct tape *t) { op_gated(t, bad_x, bad_x, NULL, &(struct gated_attr){ .heads = 3, .dim = 3 }, (struct val){ 0 }); }
static void accept_floats(struct tape *t) { op_accept(t, bad_x); }
static void gated_gate(struct tape *t)
{
    op_gated(t, bad_x, bad_x, NULL, &(struct gated_attr){ .heads = 2, .dim = 4, .at = 1, .stride = 4 },
             (struct val){ 0 });
}

static const struct { void (*record)(struct tape *t); const char *says[3]; } bad[] = {
    { norm_short, { "bad.weight", "35 elements", "needs 8" } },
    { linear_short, { "bad.weight", "rows of 7", "has 8" } },
    { linear_type, { "bad.weight", "type 26", "no matrix format" } },
    { linear_block, { "bad.weight", "256", "q4_K" } },
    { linear_bias, { "bad.weight", "35 elements", "needs 5" } },
    { linear_residual, { "residual", "8", "5" } },
    { linear_missing, { "linear", "8", "missing" } },
    { no_value, { "add", "b", "not a value" } },
    { glu_rows, { "bad.weight", "5 rows", "needs 6" } },
    { gate_odd, { "gate", "3", "even" } },
    { attn_layer, { "attn", "layer 0", "no cache" } },
    { conv_layer, { "short_conv", "layer 0", "not recurrent" } },
    { delta_layer, { "delta", "layer 3", "not recurrent" } },
    { gated_heads, { "gated", "8 columns", "3 heads of 3" } },
    { gated_gate, { "gated", "column 8", "there are 8" } },
    { accept_floats, { "accept", "one i32", "wanted row" } },
    { rope_heads, { "3 heads", "2 kv heads", "multiple" } },
    { rope_dims, { "9 rotary dims", "8", "even" } },
};

TEST(record_functions_refuse_wrong_shapes_and_name_both_numbers)
{
    static const float values[64] = { 0 };
    bad_w = (struct weight){ .name = "bad.weight", .dim = { 7, 5, 1 }, .type = Q_F32,
                             .host = (const uint8_t *)values };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct tape t;
        tape_begin(&t, (struct target){ 0 }, NULL);
        bad_x = tape_input(&t, "x", (struct shape){ DOM_ROWS, DT_F32, 8 });
        bad[i].record(&t);
        CHECK(tape_dead(&t), "row %zu", i);
        CHECK_EQ(t.n_calls, 0);
        for (int j = 0; j < 3; j++)
            CHECK(strstr(t.error.text, bad[i].says[j]) != NULL, "row %zu: \"%s\" lacks \"%s\"", i, t.error.text,
                  bad[i].says[j]);
        tape_drop(&t);
    }
}
