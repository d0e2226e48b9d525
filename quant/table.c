/* quant/table.c - the rows of all formats; the only place that knows them all. */
#include <strings.h>

#include "base/mem.h"
#include "quant/quant.h"

extern const struct format format_f32, format_f16, format_bf16, format_i8, format_i16, format_i32,
    format_i64, format_f64, format_q4_0, format_q4_1, format_q5_0, format_q5_1, format_q8_0,
    format_q2_k, format_q3_k, format_q4_k, format_q5_k, format_q6_k, format_iq1_s, format_iq1_m,
    format_iq2_xxs, format_iq2_xs, format_iq2_s, format_iq3_xxs, format_iq3_s, format_iq4_nl,
    format_iq4_xs, format_mxfp4, format_nvfp4, format_q1_0, format_q2_0, format_tq1_0, format_tq2_0,
    format_tq3_0, format_rocmfp4, format_rocmfp4_fast, format_rocmfp6, format_rocmfp8,
    format_rocmfp3, format_rocmfp2, format_rocmfp2_affine, format_rocmfp3_mix, format_rocmfp2_mix;

static const struct format *const rows[] = {
    &format_f32, &format_f16, &format_bf16,
    &format_q4_0, &format_q4_1, &format_q5_0, &format_q5_1, &format_q8_0,
    &format_q2_k, &format_q3_k, &format_q4_k, &format_q5_k, &format_q6_k,
    &format_iq1_s, &format_iq1_m, &format_iq2_xxs, &format_iq2_xs, &format_iq2_s,
    &format_iq3_xxs, &format_iq3_s, &format_iq4_nl, &format_iq4_xs,
    &format_mxfp4, &format_nvfp4,
    &format_q1_0, &format_q2_0, &format_tq1_0, &format_tq2_0, &format_tq3_0,
    &format_rocmfp4, &format_rocmfp4_fast, &format_rocmfp6, &format_rocmfp8, &format_rocmfp3,
    &format_rocmfp3_mix, &format_rocmfp2, &format_rocmfp2_mix, &format_rocmfp2_affine,
    &format_i8, &format_i16, &format_i32, &format_i64, &format_f64,
};

const struct format *format_find(uint32_t id)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i]->id == id) return rows[i];
    return NULL;
}

const struct format *format_named(const char *name)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcasecmp(rows[i]->name, name)) return rows[i];
    return NULL;
}

const struct format *format_at(size_t i)
{
    return i < COUNT(rows) ? rows[i] : NULL;
}
