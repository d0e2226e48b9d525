/* tests/test_sample.c - the sampling chain: frequencies against the defined distribution, order of the
 * filters, ties, hostile logits. */
#include <math.h>

#include "ops/draw_row.h"
#include "run/sample.h"
#include "test.h"

enum { VOCAB = 12, DRAWS = 20000 };

static int32_t choose(struct sampler *s, const struct sample_params *p, const float *logits, int index)
{
    float copy[VOCAB];
    int32_t token;
    luce_error err = { 0 };
    memcpy(copy, logits, sizeof copy);
    CHECK_OK(sampler_choose(s, p, copy, NULL, 0, index, &token, &err), err);
    return token;
}

/* The chain once more, in the plainest way: fills q with the probabilities. */
static void expected(const struct sample_params *p, const float *logits, double *q)
{
    int order[VOCAB], n = VOCAB;
    for (int i = 0; i < VOCAB; i++) order[i] = i;
    for (int i = 0; i < VOCAB; i++)
        for (int j = i + 1; j < VOCAB; j++)
            if (logits[order[j]] > logits[order[i]]) {
                int t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
    if (p->top_k && p->top_k < n) n = p->top_k;
    double w[VOCAB], sum = 0;
    for (int i = 0; i < n; i++) w[i] = exp((double)(logits[order[i]] - logits[order[0]]) / p->temperature);
    if (p->min_p > 0)
        while (n > 1 && w[n - 1] < (double)p->min_p) n--;
    for (int i = 0; i < n; i++) sum += w[i];
    if (p->top_p > 0 && p->top_p < 1) {
        double have = 0;
        int keep = 0;
        while (keep < n && have < (double)p->top_p * sum) have += w[keep++];
        n = keep;
        sum = have;
    }
    memset(q, 0, VOCAB * sizeof *q);
    for (int i = 0; i < n; i++) q[order[i]] = w[i] / sum;
}

TEST(sample_draws_follow_the_defined_distribution)
{
    static const struct sample_params settings[] = {
        { .temperature = 1 }, { .temperature = 0.3f }, { .temperature = 2.5f },
        { .temperature = 1, .top_k = 4 }, { .temperature = 1, .top_p = 0.6f },
        { .temperature = 1, .min_p = 0.2f }, { .temperature = 0.8f, .top_k = 8, .top_p = 0.9f, .min_p = 0.05f },
    };
    struct sampler *s;
    luce_error err = { 0 };
    CHECK_OK(sampler_open(&s, VOCAB, &err), err);
    for (size_t k = 0; k < COUNT(settings); k++) {
        struct sample_params p = settings[k];
        float logits[VOCAB];
        double q[VOCAB], chi = 0;
        int seen[VOCAB] = { 0 }, freedom = -1;
        for (int i = 0; i < VOCAB; i++) logits[i] = (float)test_normal() * 1.5f;
        p.seed = test_random();
        expected(&p, logits, q);
        for (int i = 0; i < DRAWS; i++) seen[choose(s, &p, logits, i)]++;
        for (int i = 0; i < VOCAB; i++) {
            double want = q[i] * DRAWS;
            if (q[i] == 0) CHECK_EQ(seen[i], 0);
            if (want < 5) continue;             /* too rare for the approximation */
            chi += (seen[i] - want) * (seen[i] - want) / want;
            freedom++;
        }
        /* Mean `freedom`, deviation sqrt(2 freedom): seven deviations are one in many millions. */
        CHECK(chi < freedom + 7 * sqrt(2.0 * (freedom > 1 ? freedom : 1)) + 7, "setting %zu: chi square %f of %d",
              k, chi, freedom);
    }
    sampler_close(s);
}

/* All 2^20 fractions, and what float makes of large differences. */
TEST(sample_weights_are_exponentials_in_order)
{
    uint64_t last = DRAW_ONE + 1;
    for (int i = 0; i < 1 << 20; i++) {
        float t = -(float)i * 0x1p-20f;
        uint64_t w = draw_weight(t, 0, 1), half = draw_weight(t - 1, 0, 1);
        CHECK(w < last && half == w / 2, "weight of %g: %llu, one lower %llu", (double)t, (unsigned long long)w,
              (unsigned long long)half);
        CHECK(fabs((double)w * 0x1p-40 / exp2((double)t) - 1) < 1e-6, "weight of %g", (double)t);
        last = w;
    }
    for (int i = 0; i < 20000; i++) {
        float max = 20 * (float)test_normal(), x = max - fabsf(8 * (float)test_normal()), scale = 0.5f + (float)(i % 7);
        double want = exp2(((double)x - (double)max) * (double)scale), got = (double)draw_weight(x, max, scale) * 0x1p-40;
        CHECK(fabs(got - want) < 2e-6 * want * (1 + (double)fabsf((x - max) * scale)) + 0x1p-40, "%g %g", got, want);
    }
    CHECK_EQ(draw_weight(3, 3, 0x1p100f), DRAW_ONE);
    CHECK_EQ(draw_weight(2.9f, 3, 0x1p100f), 0);
    CHECK_EQ(draw_weight(-INFINITY, 3, 1), 0);
}

TEST(sample_choices_depend_on_seed_and_position_alone)
{
    struct sampler *s;
    luce_error err = { 0 };
    CHECK_OK(sampler_open(&s, VOCAB, &err), err);
    float logits[VOCAB] = { 0 };
    struct sample_params a = { .temperature = 1, .seed = 1 }, b = { .temperature = 1, .seed = 2 };
    int differ = 0;
    for (int i = 0; i < 50; i++) {
        int32_t first = choose(s, &a, logits, i);
        choose(s, &a, logits, i + 1);
        CHECK_EQ(choose(s, &a, logits, i), first);
        differ += choose(s, &b, logits, i) != first;
    }
    CHECK(differ > 25, "%d", differ);
    sampler_close(s);
}

TEST(sample_ties_go_to_the_lowest_id)
{
    struct sampler *s;
    luce_error err = { 0 };
    CHECK_OK(sampler_open(&s, VOCAB, &err), err);
    float logits[VOCAB] = { -1, 3, 0, 3, 3, -2, 3 };
    CHECK_EQ(choose(s, &(struct sample_params){ 0 }, logits, 0), 1);
    struct sample_params two = { .temperature = 1, .top_k = 2, .seed = 9 };
    for (int i = 0; i < 200; i++) {
        int32_t t = choose(s, &two, logits, i);
        CHECK(t == 1 || t == 3, "%d", t);
    }
    sampler_close(s);
}

/* Any number of logits, with zeros of both signs, ties and masked ones. */
TEST(sample_finds_the_first_of_the_largest_logits)
{
    enum { MOST = 300 };
    for (int round = 0; round < 300; round++) {
        int n = 1 + (int)(test_random() % MOST), best = -1;
        struct sampler *s;
        luce_error err = { 0 };
        float logits[MOST];
        CHECK_OK(sampler_open(&s, n, &err), err);
        float shift = (float)(test_random() % 9) - 4;
        for (int i = 0; i < n; i++) {
            float x = (float)(test_random() % 5) - shift;
            logits[i] = test_random() % 8 == 0 ? -INFINITY : x == 0 && test_random() % 2 ? -0.0F : x;
            if (logits[i] > -INFINITY && (best < 0 || logits[i] > logits[best])) best = i;
        }
        int32_t token;
        luce_status st = sampler_choose(s, &(struct sample_params){ 0 }, logits, NULL, 0, 0, &token, &err);
        CHECK_EQ(st, best < 0 ? LUCE_E_NUMERIC : LUCE_OK);
        CHECK_EQ(token, best);
        sampler_close(s);
    }
}

TEST(sample_penalties_see_the_window_of_the_history)
{
    struct sampler *s;
    luce_error err = { 0 };
    CHECK_OK(sampler_open(&s, VOCAB, &err), err);
    int32_t history[] = { 5, 1, 1, 2 }, token;
    struct sample_params p = { .repetition_penalty = 2, .frequency_penalty = 0.25f, .presence_penalty = 0.5f,
                               .penalty_window = 3 };
    float l[VOCAB] = { 0, 4, -1, 1, 0, 9 };
    CHECK_OK(sampler_choose(s, &p, l, history, 4, 4, &token, &err), err);
    CHECK(l[1] == 4 / 2.0f - 2 * 0.25f - 0.5f, "%f", (double)l[1]);
    CHECK(l[2] == -1 * 2.0f - 0.25f - 0.5f, "%f", (double)l[2]);
    CHECK(l[3] == 1 && l[5] == 9);              /* unseen, and out of the window */
    CHECK_EQ(token, 5);
    /* Nothing of it stays for the next choice. */
    float again[VOCAB] = { 0, 4 };
    CHECK_OK(sampler_choose(s, &p, again, NULL, 0, 0, &token, &err), err);
    CHECK_EQ(token, 1);
    sampler_close(s);
}

TEST(sample_bias_and_mask_come_first)
{
    struct sampler *s;
    luce_error err = { 0 };
    CHECK_OK(sampler_open(&s, VOCAB, &err), err);
    int32_t id[] = { 7, 400, -3 };
    float by[] = { 100, 1, 1 };
    uint32_t mask = 1 << 2 | 1 << 7;
    float l[VOCAB] = { 9, 8, 1 };
    CHECK_EQ(choose(s, &(struct sample_params){ .bias_id = id, .bias = by, .n_bias = 3 }, l, 0), 7);
    CHECK_EQ(choose(s, &(struct sample_params){ .mask = &mask }, l, 0), 2);
    sampler_close(s);
}

TEST(sample_refuses_logits_that_are_not_finite)
{
    struct sampler *s;
    luce_error err = { 0 };
    CHECK_OK(sampler_open(&s, VOCAB, &err), err);
    const float bad[] = { NAN, INFINITY };
    for (size_t i = 0; i < COUNT(bad); i++)
        for (float t = 0; t < 2; t++) {
            float l[VOCAB] = { 0 };
            int32_t token = 5;
            l[test_random() % VOCAB] = bad[i];
            CHECK_EQ(sampler_choose(s, &(struct sample_params){ .temperature = t }, l, NULL, 0, 77, &token, &err), LUCE_E_NUMERIC);
            CHECK(strstr(err.text, "position 77"), "%s", err.text);
            CHECK_EQ(token, -1);
        }
    uint32_t none = 0;
    float l[VOCAB] = { 0 };
    int32_t token;
    CHECK_EQ(sampler_choose(s, &(struct sample_params){ .mask = &none }, l, NULL, 0, 0, &token, &err),
             LUCE_E_NUMERIC);
    sampler_close(s);
}

TEST(sample_logprobs_are_sorted_and_normalised)
{
    float l[VOCAB], logprob, top[VOCAB];
    int32_t ids[VOCAB];
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) l[i] = (float)test_normal();
    sampler_logprobs(l, VOCAB, 3, &logprob, VOCAB, ids, top);
    for (int i = 0; i < VOCAB; i++) {
        sum += exp((double)top[i]);
        if (i) CHECK(top[i] <= top[i - 1]);
        if (ids[i] == 3) CHECK(top[i] == logprob);
    }
    CHECK(fabs(sum - 1) < 1e-5, "%f", sum);
    float one;
    int32_t best;
    sampler_logprobs(l, VOCAB, ids[0], &logprob, 1, &best, &one);
    CHECK(best == ids[0] && one == logprob);
}

TEST(sample_open_fails_cleanly_without_memory)
{
    size_t live = mem_live();
    for (long n = 0; n < 2; n++) {
        struct sampler *s;
        luce_error err = { 0 };
        mem_fail_after(n);
        CHECK_EQ(sampler_open(&s, VOCAB, &err), LUCE_E_NOMEM);
        mem_fail_never();
        CHECK_EQ(s, NULL);
        CHECK_EQ(mem_live(), live);
    }
}
