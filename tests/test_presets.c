/* tests/test_presets.c - synthetic models and the rows they are made of. */
#include <math.h>

#include "quant/synthetic.h"
#include "tests/model_drive.h"

static bool encodes(const struct format *f)
{
    return f->encode && f->decode && !f->needs_importance && !f->levels && f->id < Q_PRIVATE;
}

TEST(synthetic_rows_do_not_depend_on_chunks)
{
    enum { COLS = 768, ROWS = 9 };
    static uint8_t whole[ROWS * COLS * 8], part[ROWS * COLS * 8];
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        if (!encodes(f)) continue;
        size_t row = format_bytes(f, COLS);
        memset(whole, 0xa5, sizeof whole);
        memset(part, 0x5a, sizeof part);
        synthetic_rows(f, 7, 100, ROWS, COLS, 0.05f, whole);
        synthetic_rows(format_find(Q_F32), 1, 0, 1, 64, 1, part);        /* another pool in between */
        for (int r = ROWS; r-- > 0;) synthetic_rows(f, 7, 100 + (uint64_t)r, 1, COLS, 0.05f, part + (size_t)r * row);
        CHECK(!memcmp(whole, part, ROWS * row), "%s", f->name);
        CHECK(whole[ROWS * row] == 0xa5, "%s writes past its rows", f->name);
        synthetic_rows(f, 8, 100, ROWS, COLS, 0.05f, part);
        CHECK(memcmp(whole, part, ROWS * row) != 0, "%s: another seed gives the same rows", f->name);
    }
}

TEST(synthetic_rows_are_normal_with_the_asked_deviation)
{
    enum { COLS = 1536, ROWS = 64 };
    static uint8_t rows[ROWS * COLS * 8];
    static float values[ROWS * COLS];
    for (size_t i = 0; format_at(i); i++) {
        const struct format *f = format_at(i);
        if (!encodes(f)) continue;
        double sum = 0, squares = 0, n = ROWS * COLS;
        synthetic_rows(f, 3, 0, ROWS, COLS, 0.02f, rows);
        f->decode(rows, values, ROWS * COLS);
        for (int k = 0; k < ROWS * COLS; k++) {
            sum += values[k];
            squares += (double)values[k] * values[k];
        }
        /* Formats of one or two bits distort a normal distribution; the rest keep it. */
        double deviation = sqrt(squares / n), slack = f->bytes * 8 < f->block * 3 ? 0.5 : 0.08;
        CHECK(fabs(sum / n) < 0.2 * 0.02, "%s: mean %g", f->name, sum / n);
        CHECK(fabs(deviation / 0.02 - 1) < slack, "%s: deviation %g", f->name, deviation);
    }
}

TEST(every_preset_opens_in_every_mix_and_format)
{
    char spec[96];
    for (size_t p = 0; preset_name(p); p++)
        for (size_t x = 0; mix_name(x) || format_at(x); x++)
            for (int kind = 0; kind < 2; kind++) {
                const char *mix = kind ? mix_name(x) : format_at(x) && encodes(format_at(x)) ? format_at(x)->name : NULL;
                struct model *m = NULL;
                luce_error err = { 0 };
                if (!mix) continue;
                snprintf(spec, sizeof spec, "%s:%s", preset_name(p), mix);
                CHECK_OK(model_open_synthetic(&m, spec, &err), err);
                for (int i = 0; m && i < m->n_weights; i++) {
                    const struct weight *w = &m->weights[i];
                    const struct format *f = format_find(w->type);
                    CHECK(f && w->dim[0] % (uint64_t)f->block == 0, "%s: %s", spec, w->name);
                    CHECK(w->host || w->synthetic_std > 0, "%s: %s has neither bytes nor a seed", spec, w->name);
                    CHECK(w->host_bytes == format_bytes(f, w->dim[0]) * w->dim[1] * w->dim[2], "%s: bytes of %s", spec, w->name);
                }
                model_close(m);
            }
}

static uint32_t type_of(const struct model *m, const char *name)
{
    for (int i = 0; i < m->n_weights; i++)
        if (!strcmp(m->weights[i].name, name)) return m->weights[i].type;
    return UINT32_MAX;
}

TEST(mixes_follow_the_public_recipes)
{
    struct model *m = NULL;
    luce_error err = { 0 };
    CHECK_OK(model_open_synthetic(&m, "qwen3-8b:q4_k_m", &err), err);
    if (m) {
        CHECK_EQ(type_of(m, "token_embd.weight"), Q_Q4_K);
        CHECK_EQ(type_of(m, "output.weight"), Q_Q6_K);
        CHECK_EQ(type_of(m, "blk.0.attn_q.weight"), Q_Q4_K);
        CHECK_EQ(type_of(m, "blk.0.attn_v.weight"), Q_Q6_K);     /* first eighth of 36 layers */
        CHECK_EQ(type_of(m, "blk.4.ffn_down.weight"), Q_Q4_K);
        CHECK_EQ(type_of(m, "blk.6.ffn_down.weight"), Q_Q6_K);   /* every third */
        CHECK_EQ(type_of(m, "blk.35.ffn_down.weight"), Q_Q6_K);
    }
    model_close(m);
    CHECK_OK(model_open_synthetic(&m, "llama-135m:Q4_K", &err), err);
    if (m) {
        CHECK_EQ(type_of(m, "blk.0.attn_q.weight"), Q_Q5_0);     /* 576 is no multiple of 256 */
        CHECK_EQ(type_of(m, "blk.0.ffn_down.weight"), Q_Q4_K);
        CHECK(m->output == m->token_embd, "tied");
    }
    model_close(m);
}

TEST(unknown_synthetic_models_list_what_there_is)
{
    static const char *const specs[] = { "", "qwen3-0.6b", "qwen3-0.6b:", "qwen3-0.6b:q9_9", "gpt-5:q8_0", "qwen3-0.6b:i32" };
    for (size_t i = 0; i < COUNT(specs); i++) {
        struct model *m;
        luce_error err = { 0 };
        CHECK_EQ(model_open_synthetic(&m, specs[i], &err), LUCE_E_ARG);
        CHECK(m == NULL && strstr(err.text, "qwen3-0.6b") && strstr(err.text, "q4_k_m") && strstr(err.text, "q8_0"), "%s", err.text);
    }
}

TEST(a_synthetic_model_gives_finite_logits)
{
    struct model *m = NULL;
    struct drive d;
    luce_error err = { 0 };
    CHECK_OK(model_open_synthetic(&m, "llama-135m:q4_k_m", &err), err);
    if (m && drive_open(&d, m, 0, 4)) {
        drive_step(&d, (const int[]){ 1, 40000 }, 2, STEP_WIDE);
        const double *logits = interp_read(d.interp, d.rec.logits);
        double squares = 0;
        for (int i = 0; i < 2 * m->c.vocab; i++) squares += logits[i] * logits[i];
        squares = sqrt(squares / 2 / m->c.vocab);
        CHECK(squares > 0.1 && squares < 10, "logits have size %g", squares);
        drive_close(&d);
    }
    model_close(m);
}

TEST(model_open_synthetic_survives_any_failed_allocation)
{
    size_t before = mem_live();
    for (int n = 0; n < 1000; n++) {
        struct model *m = NULL;
        luce_error err = { 0 };
        mem_fail_after(n);
        luce_status st = model_open_synthetic(&m, "gemma3-270m:iq4_xs-mix", &err);
        mem_fail_never();
        model_close(m);
        CHECK_EQ(mem_live(), before);
        if (st == LUCE_OK) break;
        CHECK_EQ(st, LUCE_E_NOMEM);
    }
}
