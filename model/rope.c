/* model/rope.c - rotary frequencies from keys and factor tensors.
 *
 * Pair i of a head turns by w_i radians a position, w_i = base^(-2i/dims), rounded to f32 from double;
 * scaling changes the frequencies and is part of the table, so that kernels know one form:
 *   linear     w_i / factor
 *   factors    w_i / f_i                  rope_freqs.weight (Llama 3), longrope's short and long
 *   yarn       w_i (s (1 - mix_i) + mix_i), s = 1 / factor: low frequencies are stretched, high ones
 *              kept, with a ramp between (Peng et al. 2023, "YaRN")
 * and yarn and longrope scale cos and sin by a magnitude. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/bind.h"
#include "model/rope.h"

static const double TURN = 6.283185307179586;       /* radians */

enum scaling { SCALE_NONE, SCALE_LINEAR, SCALE_YARN, SCALE_LONGROPE, SCALE_COUNT };
static const char *const scaling_names[SCALE_COUNT] = { "none", "linear", "yarn", "longrope" };

struct rope_keys {
    enum scaling scaling;
    float factor, attn_factor;
    int   original_context;
    float ext, yarn_attn_factor, beta_fast, beta_slow, log_multiplier;
};

/* Scaling that a model may ask for: far beyond any that is published, near enough to keep angles and
 * scores finite. */
static const float LEAST_SCALE = 1e-3f, MOST_SCALE = 1e6f;

static bool is_scale(double x)
{
    return x >= LEAST_SCALE && x <= MOST_SCALE;
}

/* A factor that may be absent (0). */
static luce_status read_factor(const struct model *m, const struct gguf *g, const char *suffix, float absent,
                               float *out, luce_error *err)
{
    luce_status st = decoder_float(m, g, suffix, absent, -INFINITY, out, err);
    if (st || *out == 0 || is_scale(*out)) return st;
    return fail(err, LUCE_E_FORMAT, "%s: %s.%s is %g; expected %g to %g", gguf_path(g), m->family->arch, suffix, *out,
                LEAST_SCALE, MOST_SCALE);
}

static luce_status read_scaling(const struct model *m, const struct gguf *g, struct rope_keys *k,
                                luce_error *err)
{
    char key[128];
    struct str type;
    luce_status st;
    float old_factor;
    if ((st = read_factor(m, g, "rope.scale_linear", 0, &old_factor, err))) return st;
    if ((st = read_factor(m, g, "rope.scaling.factor", old_factor, &k->factor, err))) return st;
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->family->arch);
    if ((st = gguf_text(g, key, str_of(k->factor > 0 ? "linear" : "none"), &type, err))) return st;
    if (str_is(type, "default")) type = str_of("none");         /* as checkpoints say it */
    for (k->scaling = 0; k->scaling < SCALE_COUNT; k->scaling++)
        if (str_is(type, scaling_names[k->scaling])) break;
    if (k->scaling == SCALE_COUNT)
        return fail(err, LUCE_E_UNSUPPORTED, "%s: %s is '%.*s'; known: none, linear, yarn, longrope",
                    gguf_path(g), key, (int)(type.len < 40 ? type.len : 40), type.at);
    if (k->factor == 0) k->factor = 1;
    return LUCE_OK;
}

static luce_status read_keys(const struct model *m, const struct gguf *g, struct rope_keys *k, luce_error *err)
{
    luce_status st;
    if ((st = read_scaling(m, g, k, err))) return st;
    if ((st = read_factor(m, g, "rope.scaling.attn_factor", 0, &k->attn_factor, err))) return st;
    if ((st = decoder_count(m, g, "rope.scaling.original_context_length", m->c.context, 1, INT32_MAX,
                            &k->original_context, err))) return st;
    if ((st = decoder_float(m, g, "rope.scaling.yarn_ext_factor", 1, -1, &k->ext, err))) return st;
    if ((st = read_factor(m, g, "rope.scaling.yarn_attn_factor", 1, &k->yarn_attn_factor, err))) return st;
    if (k->yarn_attn_factor == 0) k->yarn_attn_factor = 1;
    if ((st = decoder_float(m, g, "rope.scaling.yarn_beta_fast", 32, 0, &k->beta_fast, err))) return st;
    if ((st = decoder_float(m, g, "rope.scaling.yarn_beta_slow", 1, 0, &k->beta_slow, err))) return st;
    return decoder_float(m, g, "rope.scaling.yarn_log_multiplier", 0, -1, &k->log_multiplier, err);
}

/* What scaling multiplies the frequency of pair i by. */
static double pair_scale(const struct rope_config *r, const struct rope_keys *k, int i)
{
    double s = 1 / (double)k->factor;
    if (k->scaling == SCALE_LINEAR) return s;
    if (k->scaling != SCALE_YARN) return 1;
    double turns = r->dims / (2 * log(r->base));
    double low = floor(turns * log(k->original_context / (TURN * k->beta_fast)));
    double high = ceil(turns * log(k->original_context / (TURN * k->beta_slow)));
    low = fmax(low, 0);
    high = fmin(high, r->dims - 1);
    double ramp = fmin(fmax((i - low) / fmax(0.001, high - low), 0), 1);
    double mix = (1 - ramp) * k->ext;
    return s * (1 - mix) + mix;
}

/* 0.1 c ln(factor) + 1: how YaRN makes up for flatter attention. */
static double yarn_gain(double factor, double c)
{
    return factor > 1 ? 0.1 * c * log(factor) + 1 : 1;
}

/* Of the two conventions of yarn_attn_factor, a stated value other than 1 is the final one. */
static double magnitude(const struct model *m, const struct gguf *g, const struct rope_keys *k)
{
    double attn = k->attn_factor > 0 ? k->attn_factor : 1;
    if (k->scaling == SCALE_LONGROPE && k->attn_factor <= 0) {
        double c = (double)m->c.context / k->original_context;
        return c > 1 && k->original_context > 1 ? sqrt(1 + log(c) / log(k->original_context)) : 1;
    }
    if (k->scaling != SCALE_YARN) return attn;
    double gain = yarn_gain(k->factor, 1);
    if (k->log_multiplier != 0) gain /= yarn_gain(k->factor, k->log_multiplier);
    if (k->yarn_attn_factor != 1) {
        if (fabs(k->yarn_attn_factor - gain) > 1e-4)
            log_warn("%s: %s.rope.scaling.yarn_attn_factor is %g where YaRN's rule gives %g; the file's "
                     "value is used", gguf_path(g), m->family->arch, k->yarn_attn_factor, gain);
        gain = k->yarn_attn_factor;
    }
    return gain * attn;
}

static float *new_table(struct model *m, struct rope_config *r, const char *name)
{
    int n = r->dims / 2;
    struct weight *w = arena_alloc(&m->arena, sizeof *w);
    r->table = arena_array(&m->arena, (size_t)n, sizeof(float));
    if (!w || !r->table) return NULL;
    *w = (struct weight){ .name = name, .dim = { (uint64_t)n, 1, 1 }, .host = (const uint8_t *)r->table,
                          .host_bytes = (uint64_t)n * sizeof(float) };
    r->freq = w;
    return r->table;
}

static float base_frequency(const struct rope_config *r, int i)
{
    return (float)pow(r->base, -2.0 * i / r->dims);
}

/* Copies optional divisors into the arena: the file may be closed after the upload. */
static luce_status read_factors(struct model *m, const struct gguf *g, const char *name, const float **out,
                                luce_error *err)
{
    const float *values;
    int n = m->c.rope[0].dims / 2;
    luce_status st = bind_floats(g, name, n, &values, err);
    *out = NULL;
    if (st || !values) return st;
    float *copy = arena_array(&m->arena, (size_t)n, sizeof(float));
    if (!copy) return fail(err, LUCE_E_NOMEM, "%s: out of memory for %s", gguf_path(g), name);
    memcpy(copy, values, (size_t)n * sizeof(float));
    for (int i = 0; i < n; i++)
        if (!is_scale(copy[i]))
            return fail(err, LUCE_E_FORMAT, "%s: tensor '%s' holds %g at %d; rope factors are %g to %g", gguf_path(g),
                        name, copy[i], i, LEAST_SCALE, MOST_SCALE);
    *out = copy;
    return LUCE_OK;
}

luce_status rope_configure(struct model *m, const struct gguf *g, luce_error *err)
{
    struct decoder *c = &m->c;
    struct rope_config *r = &c->rope[0];
    struct rope_keys k = { 0 };
    const float *factors;
    luce_status st;
    if ((st = decoder_float(m, g, "rope.freq_base", 10000, 0, &r->base, err))) return st;
    if ((st = decoder_count(m, g, "rope.dimension_count", c->head_dim, 2, c->head_dim, &r->dims, err)))
        return st;
    if (r->dims % 2)
        return fail(err, LUCE_E_FORMAT, "%s: %s.rope.dimension_count is %d; it must be even",
                    gguf_path(g), m->family->arch, r->dims);
    if (r->base <= 1)
        return fail(err, LUCE_E_FORMAT, "%s: %s.rope.freq_base is %g; it must be above 1", gguf_path(g),
                    m->family->arch, r->base);
    if ((st = read_keys(m, g, &k, err))) return st;
    if ((st = read_factors(m, g, "rope_freqs.weight", &factors, err))) return st;
    if (k.scaling == SCALE_LONGROPE) {
        if ((st = read_factors(m, g, "rope_factors_short.weight", &r->short_factors, err))) return st;
        if ((st = read_factors(m, g, "rope_factors_long.weight", &r->long_factors, err))) return st;
        if (!r->short_factors || !r->long_factors)
            return fail(err, LUCE_E_FORMAT, "%s: rope scaling is longrope, but tensor 'rope_factors_%s.weight' "
                        "[%d] is missing", gguf_path(g), r->short_factors ? "long" : "short", r->dims / 2);
        r->original_context = k.original_context;
    }
    r->magnitude = (float)magnitude(m, g, &k);
    if (!new_table(m, r, "rope frequencies"))
        return fail(err, LUCE_E_NOMEM, "%s: out of memory for rope tables", gguf_path(g));
    for (int i = 0; i < r->dims / 2; i++)
        r->table[i] = (float)(base_frequency(r, i) * pair_scale(r, &k, i) / (factors ? factors[i] : 1));
    rope_choose(m, c->context);
    return LUCE_OK;
}

void rope_choose(struct model *m, int context)
{
    struct rope_config *r = &m->c.rope[0];
    if (!r->short_factors) return;
    const float *f = context > r->original_context ? r->long_factors : r->short_factors;
    for (int i = 0; i < r->dims / 2; i++) r->table[i] = base_frequency(r, i) / f[i];
}

luce_status decoder_local_rope(struct model *m, float base, luce_error *err)
{
    struct decoder *c = &m->c;
    struct rope_config *r = &c->rope[c->n_ropes];
    *r = (struct rope_config){ .layout = c->rope[0].layout, .dims = c->rope[0].dims, .base = base,
                               .magnitude = 1 };
    if (!new_table(m, r, "rope frequencies of windowed layers"))
        return fail(err, LUCE_E_NOMEM, "out of memory for rope tables");
    for (int i = 0; i < r->dims / 2; i++) r->table[i] = base_frequency(r, i);
    for (int l = 0; l < c->n_layers; l++)
        if (c->layer[l].window) c->layer[l].rope = c->n_ropes;
    c->n_ropes++;
    return LUCE_OK;
}
