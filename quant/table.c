/* quant/table.c - the rows of all formats; the only place that knows them all. */
#include <strings.h>

#include "base/mem.h"
#include "quant/quant.h"

extern const struct format format_f32, format_f16, format_bf16, format_i8, format_i16, format_i32,
    format_i64, format_f64, format_q4_0, format_q4_1, format_q5_0, format_q5_1, format_q8_0, format_q2_k,
    format_q3_k, format_q4_k, format_q5_k, format_q6_k;

static const struct format *const rows[] = {
    &format_f32, &format_f16, &format_bf16,
    &format_q4_0, &format_q4_1, &format_q5_0, &format_q5_1, &format_q8_0,
    &format_q2_k, &format_q3_k, &format_q4_k, &format_q5_k, &format_q6_k,
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
