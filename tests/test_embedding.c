/* tests/test_embedding.c - what comes of a prompt alone: embeddings against the stored hidden states of an
 * independent implementation, and the logprobs of its tokens. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "luce.h"
#include "test.h"
#include "tests/oracle.h"
#include "tiny_model.h"

enum { MOST_EMBD = 256, MOST_TOKENS = 512 };

/* The final norm of hidden states from..to-1, summed and made a direction, in float64. */
static void expected(const struct gguf *g, const struct model *m, const struct oracle *o, int from, int to, double *out)
{
    const struct gguf_tensor *w = gguf_find(g, "output_norm.weight");
    const float *weight = (const void *)w->data;
    const float *last = o->hidden + (size_t)(o->layers - 1) * (size_t)o->n * (size_t)o->embd;
    double squares = 0;
    for (int c = 0; c < o->embd; c++) out[c] = 0;
    for (int i = from; i < to; i++) {
        const float *x = last + (size_t)i * (size_t)o->embd;
        double ss = 0;
        for (int c = 0; c < o->embd; c++) ss += (double)x[c] * (double)x[c];
        for (int c = 0; c < o->embd; c++)
            out[c] += (double)x[c] * (double)weight[c] / sqrt(ss / o->embd + (double)m->c.eps);
    }
    for (int c = 0; c < o->embd; c++) squares += out[c] * out[c];
    for (int c = 0; c < o->embd; c++) out[c] /= sqrt(squares);
}

static double distance(const float *a, const double *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        if (!(d <= most)) most = d >= 0 ? d : INFINITY;
    }
    return most;
}

static luce_status embed(luce_model *m, const int32_t *ids, int n, luce_pooling pooling, float *out, luce_error *err)
{
    luce_result r;
    luce_request q = { .tokens = ids, .n_tokens = (size_t)n, .prompt_only = true, .embedding = out, .pooling = pooling };
    luce_status st = luce_generate(m, &q, &r, err);
    if (!st) CHECK_EQ(r.finish, LUCE_FINISH_LENGTH);
    CHECK_EQ(r.n_tokens, (size_t)0);
    luce_result_drop(&r);
    return st;
}

TEST(embedding_is_the_normed_hidden_state_of_the_oracle)
{
    for (int i = 0; oracle_cases[i]; i++) {
        struct gguf *g;
        struct model *m;
        struct oracle o;
        luce_model *model = NULL;
        luce_error err = { 0 };
        char file[64];
        double want[MOST_EMBD];
        float got[MOST_EMBD];
        if (!oracle_open(&g, &m, oracle_cases[i])) return;
        snprintf(file, sizeof file, "oracle/%s.gguf", oracle_cases[i]);
        luce_model_params p = { .path = fixture(file), .device = "cpu", .threads = 2, .context = 0 };
        if (oracle_get(&o, g, 0) && o.hidden && o.embd <= MOST_EMBD) {
            CHECK_OK(luce_model_open(&model, &p, &err), err);
            if (!model) return;
            CHECK_EQ(luce_model_describe(model).embedding, o.embd);
            for (int pooling = 0; pooling < 2; pooling++) {
                expected(g, m, &o, pooling == LUCE_POOL_MEAN ? 0 : o.n - 1, o.n, want);
                CHECK_OK(embed(model, o.tokens, o.n, (luce_pooling)pooling, got, &err), err);
                double off = distance(got, want, o.embd);
                CHECK(off < 1e-3, "%s: pooling %d is off by %g", oracle_cases[i], pooling, off);
            }
            luce_model_close(model);
        }
        model_close(m);
        gguf_close(g);
    }
}

static void some_ids(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) ids[i] = (i * 37 + i * i % 11) % 250;
}

TEST(embedding_does_not_depend_on_chunks_or_company)
{
    int32_t ids[300];
    luce_error err = { 0 };
    static const int chunks[] = { 1, 17, 64, 256 };
    float first[2][MOST_EMBD], got[MOST_EMBD];
    some_ids(ids, 300);
    for (size_t i = 0; i < COUNT(chunks); i++) {
        luce_model *m = NULL;
        luce_model_params p = { .path = tiny_model(), .device = "cpu", .threads = 2, .chunk = chunks[i], .sequences = 4 };
        CHECK_OK(luce_model_open(&m, &p, &err), err);
        if (!m) return;
        int embd = luce_model_describe(m).embedding;
        size_t bytes = (size_t)embd * sizeof(float);
        float last[MOST_EMBD], twin[MOST_EMBD];
        luce_request q[4] = {
            { .tokens = ids, .n_tokens = 300, .prompt_only = true, .embedding = got },
            { .tokens = ids + 7, .n_tokens = 200, .max_tokens = 20 },
            { .tokens = ids, .n_tokens = 300, .prompt_only = true, .embedding = last, .pooling = LUCE_POOL_LAST },
            { .tokens = ids, .n_tokens = 300, .prompt_only = true, .embedding = twin },
        };
        luce_result r[4];
        for (int pooling = 0; pooling < 2; pooling++) {
            float *to = i == 0 ? first[pooling] : got;
            CHECK_OK(embed(m, ids, 300, (luce_pooling)pooling, to, &err), err);
            CHECK(!memcmp(to, first[pooling], bytes), "chunk %d, pooling %d", chunks[i], pooling);
        }
        CHECK_OK(luce_generate_batch(m, q, 4, r, &err), err);
        CHECK(!memcmp(got, first[LUCE_POOL_MEAN], bytes), "in company, chunk %d", chunks[i]);
        CHECK(!memcmp(twin, first[LUCE_POOL_MEAN], bytes), "beside its twin, chunk %d", chunks[i]);
        CHECK(!memcmp(last, first[LUCE_POOL_LAST], bytes), "the last one's beside its like, chunk %d", chunks[i]);
        for (int k = 0; k < 4; k++) luce_result_drop(&r[k]);
        luce_model_close(m);
    }
}

struct told {
    int n;
    int32_t id[MOST_TOKENS];
    float logprob[MOST_TOKENS];
};

static void on_prompt(void *user, const luce_token *t)
{
    struct told *told = user;
    told->id[told->n] = t->id;
    told->logprob[told->n++] = t->logprob;
    CHECK_EQ(t->n_top, 2);
    CHECK(t->top_logprob[0] >= t->logprob, "the likeliest is less likely than another");
}

static void on_token(void *user, const luce_token *t)
{
    on_prompt(user, t);
}

TEST(prompt_logprobs_are_those_of_the_same_tokens_generated)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    int32_t ids[MOST_TOKENS];
    luce_model_params p = { .path = tiny_model(), .device = "cpu", .threads = 2, .chunk = 33 };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    if (!m) return;
    struct told made = { 0 }, read = { 0 };
    luce_result r;
    some_ids(ids, 40);
    luce_request q = { .tokens = ids, .n_tokens = 40, .max_tokens = 60, .ignore_end = true, .logprobs = true,
                       .top_logprobs = 2, .on_token = on_token, .user = &made };
    CHECK_OK(luce_generate(m, &q, &r, &err), err);
    memcpy(ids + 40, r.tokens, r.n_tokens * sizeof *ids);
    luce_result_drop(&r);
    q = (luce_request){ .tokens = ids, .n_tokens = 100, .prompt_only = true, .top_logprobs = 2, .on_prompt = on_prompt,
                        .user = &read };
    CHECK_OK(luce_generate(m, &q, &r, &err), err);
    CHECK_EQ(read.n, 99);
    CHECK_EQ(made.n, 60);
    CHECK(!memcmp(read.id, ids + 1, 99 * sizeof *ids), "the prompt's own tokens, but the first");
    for (int i = 0; i < 60; i++)
        CHECK(read.logprob[39 + i] == made.logprob[i], "token %d: %.9g, and %.9g when it was made", i,
              (double)read.logprob[39 + i], (double)made.logprob[i]);
    luce_result_drop(&r);
    luce_model_close(m);
}

TEST(embedding_survives_any_failed_allocation)
{
    int32_t ids[70];
    float got[MOST_EMBD];
    luce_error err = { 0 };
    luce_model *m = NULL;
    luce_model_params p = { .path = tiny_model(), .device = "cpu", .threads = 1 };
    some_ids(ids, 70);
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    if (!m) return;
    CHECK_OK(embed(m, ids, 70, LUCE_POOL_MEAN, got, &err), err);
    size_t before = mem_live();
    for (int n = 0;; n++) {
        mem_fail_after(n);
        luce_status st = embed(m, ids, 70, LUCE_POOL_MEAN, got, &err);
        mem_fail_never();
        CHECK_EQ(mem_live(), before);
        if (!st) break;
        CHECK_EQ(st, LUCE_E_NOMEM);
    }
    luce_request q = { .tokens = ids, .n_tokens = 70, .embedding = got };
    luce_result r;
    CHECK_EQ(luce_generate(m, &q, &r, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "prompt_only") != NULL, "%s", err.text);
    luce_result_drop(&r);
    luce_model_close(m);
}
