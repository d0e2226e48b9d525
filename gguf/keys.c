/* gguf/keys.c - values of keys as the caller wants them: converters write u32 where others write
 * i32, u64 or f64, and a scalar where others write one value per layer, so every reading converts,
 * with a range check and a message that shows the value. */
#include <inttypes.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "gguf/inside.h"
#include "gguf/types.h"

struct number {
    bool real;                      /* d holds the value, otherwise i */
    __int128 i;                     /* wide enough for both u64 and i64 */
    double d;
};

static uint64_t load(const uint8_t *at, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)at[i] << 8 * i;
    return v;
}

/* False for strings and beyond the end. */
static bool number_at(const struct gguf_key *k, uint64_t i, struct number *out)
{
    enum gguf_type t = k->type == GGUF_ARRAY ? k->element : k->type;
    unsigned bytes = gguf_type_bytes(t);
    if (!bytes || i >= k->count) return false;
    uint64_t raw = load(k->value + i * bytes, bytes);
    *out = (struct number){ .real = t == GGUF_F32 || t == GGUF_F64 };
    switch (t) {
    case GGUF_F32: {
        union { uint32_t u; float f; } v = { .u = (uint32_t)raw };
        out->d = (double)v.f;
        break;
    }
    case GGUF_F64: {
        union { uint64_t u; double d; } v = { .u = raw };
        out->d = v.d;
        break;
    }
    case GGUF_I8:   out->i = (int8_t)raw; break;
    case GGUF_I16:  out->i = (int16_t)raw; break;
    case GGUF_I32:  out->i = (int32_t)raw; break;
    case GGUF_I64:  out->i = (int64_t)raw; break;
    case GGUF_BOOL: out->i = raw != 0; break;
    default:        out->i = raw; break;
    }
    return true;
}

static luce_status mismatch(const struct part *p, const struct gguf_key *k, uint64_t i,
                            const char *wanted, luce_error *err)
{
    char value[80] = "", element[40] = "", type[40];
    struct number n;
    if (k->type == GGUF_ARRAY) {
        snprintf(type, sizeof type, "%" PRIu64 " x %s", k->count, gguf_type_name(k->element));
        if (i < k->count) snprintf(element, sizeof element, " element %" PRIu64, i);
    } else {
        snprintf(type, sizeof type, "%s", gguf_type_name(k->type));
    }
    if (number_at(k, i, &n)) {
        if (n.real) snprintf(value, sizeof value, " is %g,", n.d);
        else if (n.i > INT64_MAX) snprintf(value, sizeof value, " is %" PRIu64 ",", (uint64_t)n.i);
        else snprintf(value, sizeof value, " is %" PRId64 ",", (int64_t)n.i);
    } else if (k->type == GGUF_STRING) {
        uint64_t len = load(k->value, 8);
        snprintf(value, sizeof value, " is '%.*s',", len > 40 ? 40 : (int)len,
                 (const char *)k->value + 8);
    }
    return fail(err, LUCE_E_FORMAT, "%s: key '%.*s'%s%s of type %s at byte %" PRIu64 "; wanted: %s",
                p->path, k->name.len > 100 ? 100 : (int)k->name.len, k->name.at, element, value,
                type, (uint64_t)(k->value - p->data), wanted);
}

static bool to_u32(const struct gguf_key *k, uint64_t i, uint32_t *out)
{
    struct number n;
    if (!number_at(k, i, &n)) return false;
    if (n.real) {
        if (!(n.d >= 0 && n.d <= UINT32_MAX && floor(n.d) == n.d)) return false;
        n.i = (int64_t)n.d;
    }
    if (n.i < 0 || n.i > UINT32_MAX) return false;
    *out = (uint32_t)n.i;
    return true;
}

static bool to_f32(const struct gguf_key *k, uint64_t i, float *out)
{
    struct number n;
    if (!number_at(k, i, &n)) return false;
    double d = n.real ? n.d : (double)n.i;
    if (!(fabs(d) <= FLT_MAX)) return false;
    *out = (float)d;
    return true;
}

static const char wants_u32[] = "a whole number from 0 to 4294967295";
static const char wants_f32[] = "a finite number in the range of f32";

luce_status part_u32(const struct part *p, const char *key, uint32_t absent, uint32_t *out,
                     luce_error *err)
{
    *out = absent;
    const struct gguf_key *k = part_key(p, key);
    if (!k) return LUCE_OK;
    if (k->type == GGUF_ARRAY || !to_u32(k, 0, out)) return mismatch(p, k, 0, wants_u32, err);
    return LUCE_OK;
}

luce_status gguf_u32(const struct gguf *g, const char *key, uint32_t absent, uint32_t *out,
                     luce_error *err)
{
    return part_u32(&g->parts[0], key, absent, out, err);
}

luce_status gguf_f32(const struct gguf *g, const char *key, float absent, float *out,
                     luce_error *err)
{
    *out = absent;
    const struct gguf_key *k = gguf_key(g, key);
    if (!k) return LUCE_OK;
    if (k->type == GGUF_ARRAY || !to_f32(k, 0, out))
        return mismatch(&g->parts[0], k, 0, wants_f32, err);
    return LUCE_OK;
}

luce_status gguf_bool(const struct gguf *g, const char *key, bool absent, bool *out,
                      luce_error *err)
{
    *out = absent;
    const struct gguf_key *k = gguf_key(g, key);
    if (!k) return LUCE_OK;
    struct number n;
    if (k->type == GGUF_ARRAY || !number_at(k, 0, &n) || n.real || n.i < 0 || n.i > 1)
        return mismatch(&g->parts[0], k, 0, "true or false (bool, or an integer 0 or 1)", err);
    *out = n.i == 1;
    return LUCE_OK;
}

static struct str string_at(const uint8_t *at)
{
    return (struct str){ (const char *)at + 8, (size_t)load(at, 8) };
}

luce_status gguf_text(const struct gguf *g, const char *key, struct str absent, struct str *out,
                      luce_error *err)
{
    *out = absent;
    const struct gguf_key *k = gguf_key(g, key);
    if (!k) return LUCE_OK;
    if (k->type != GGUF_STRING) return mismatch(&g->parts[0], k, 0, "a string", err);
    *out = string_at(k->value);
    return LUCE_OK;
}

/* Whether k can give n values, one per layer. */
static luce_status check_per(const struct part *p, const struct gguf_key *k, int n, luce_error *err)
{
    if (k->type != GGUF_ARRAY || k->count >= (uint64_t)n) return LUCE_OK;
    char wanted[60];
    snprintf(wanted, sizeof wanted, "one value, or at least %d", n);
    return mismatch(p, k, k->count, wanted, err);
}

luce_status gguf_u32_per(const struct gguf *g, const char *key, uint32_t absent, uint32_t *out,
                         int n, luce_error *err)
{
    for (int i = 0; i < n; i++) out[i] = absent;
    const struct gguf_key *k = gguf_key(g, key);
    luce_status st = k ? check_per(&g->parts[0], k, n, err) : LUCE_OK;
    for (int i = 0; k && !st && i < n; i++) {
        uint64_t at = k->type == GGUF_ARRAY ? (uint64_t)i : 0;
        if (!to_u32(k, at, &out[i])) st = mismatch(&g->parts[0], k, at, wants_u32, err);
    }
    return st;
}

luce_status gguf_f32_per(const struct gguf *g, const char *key, float absent, float *out, int n,
                         luce_error *err)
{
    for (int i = 0; i < n; i++) out[i] = absent;
    const struct gguf_key *k = gguf_key(g, key);
    luce_status st = k ? check_per(&g->parts[0], k, n, err) : LUCE_OK;
    for (int i = 0; k && !st && i < n; i++) {
        uint64_t at = k->type == GGUF_ARRAY ? (uint64_t)i : 0;
        if (!to_f32(k, at, &out[i])) st = mismatch(&g->parts[0], k, at, wants_f32, err);
    }
    return st;
}

bool gguf_next(const struct gguf_key *k, struct gguf_cursor *c, struct str *out)
{
    bool strings = k->type == GGUF_STRING || (k->type == GGUF_ARRAY && k->element == GGUF_STRING);
    if (!strings || c->index >= k->count) return false;
    if (!c->at) c->at = k->value;
    *out = string_at(c->at);
    c->at += 8 + out->len;
    c->index++;
    return true;
}

int64_t gguf_int_at(const struct gguf_key *k, uint64_t i)
{
    struct number n;
    if (!number_at(k, i, &n)) return 0;
    if (!n.real) return n.i > INT64_MAX ? INT64_MAX : (int64_t)n.i;
    if (isnan(n.d)) return 0;
    return n.d >= 0x1p63 ? INT64_MAX : n.d < -0x1p63 ? INT64_MIN : (int64_t)n.d;
}

double gguf_float_at(const struct gguf_key *k, uint64_t i)
{
    struct number n;
    return !number_at(k, i, &n) ? 0 : n.real ? n.d : (double)n.i;
}
