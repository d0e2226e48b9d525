/* tests/test_engine.c - the public interface on a tiny model: the same text alone, in company, in any
 * chunks and on any number of threads; stop strings, limits, sessions, cancelling, failures. */
#include <stdlib.h>

#include "base/buf.h"
#include "test.h"
#include "tiny_model.h"

static luce_model *open_tiny(int sequences, int chunk, int threads)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    CHECK_OK(luce_model_open(&m, &(luce_model_params){ .path = tiny_model(), .device = "cpu", .threads = threads,
                                                        .sequences = sequences, .chunk = chunk }, &err), err);
    return m;
}

static luce_request ask(const char *text, int max_tokens)
{
    return (luce_request){ .text = { .at = text, .bytes = strlen(text) }, .max_tokens = max_tokens,
                           .ignore_end = true };
}

static luce_result generate(luce_model *m, const luce_request *q)
{
    luce_result r;
    luce_error err = { 0 };
    CHECK_OK(luce_generate(m, q, &r, &err), err);
    return r;
}

static bool same_tokens(const luce_result *a, const luce_result *b)
{
    return a->n_tokens == b->n_tokens && a->text_bytes == b->text_bytes &&
           !memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) &&
           (!a->text_bytes || !memcmp(a->text, b->text, a->text_bytes));
}

/* Random lower-case text of n bytes. */
static void fill_text(char *out, int n)
{
    for (int i = 0; i < n; i++) out[i] = (char)('a' + test_random() % 26);
    out[n] = '\0';
}

enum { REQUESTS = 9, PROMPT_MOST = 220 };
static char prompts[REQUESTS][PROMPT_MOST + 1];

/* Requests of all kinds: short and long prompts, greedy and drawn. */
static void make_requests(luce_request *q)
{
    static const int lengths[REQUESTS] = { 1, 63, 64, 65, 200, 3, 128, 129, 30 };
    for (int i = 0; i < REQUESTS; i++) {
        fill_text(prompts[i], lengths[i]);
        q[i] = ask(prompts[i], 5 + i * 7);
        if (i % 3 == 1) q[i].sampling = (luce_sampling){ .temperature = 1.2f, .top_k = 40, .has_seed = true,
                                                         .seed = (uint64_t)i };
        if (i % 3 == 2) q[i].sampling = (luce_sampling){ .repetition_penalty = 1.3f, .presence_penalty = 0.5f };
    }
}

TEST(engine_text_does_not_depend_on_company_chunks_or_threads)
{
    luce_request q[REQUESTS];
    luce_result alone[REQUESTS], batch[REQUESTS];
    luce_error err = { 0 };
    make_requests(q);
    luce_model *m = open_tiny(1, 0, 1);
    if (!m) return;
    for (int i = 0; i < REQUESTS; i++) alone[i] = generate(m, &q[i]);
    luce_model_close(m);
    static const struct { int sequences, chunk, threads; } ways[] = {
        { 1, 64, 2 }, { 3, 0, 2 }, { 8, 128, 1 }, { 4, 7, 3 }, { 64, 2048, 2 },
    };
    for (size_t w = 0; w < COUNT(ways); w++) {
        m = open_tiny(ways[w].sequences, ways[w].chunk, ways[w].threads);
        if (!m) return;
        CHECK_OK(luce_generate_batch(m, q, REQUESTS, batch, &err), err);
        for (int i = 0; i < REQUESTS; i++) {
            CHECK(same_tokens(&alone[i], &batch[i]), "way %zu: request %d differs", w, i);
            CHECK_EQ(batch[i].n_tokens, (size_t)(5 + i * 7));
            luce_result_drop(&batch[i]);
        }
        luce_model_close(m);
    }
    for (int i = 0; i < REQUESTS; i++) luce_result_drop(&alone[i]);
}

/* Each cache format has a text of its own, which depends on nothing else. */
TEST(engine_text_of_every_cache_format_does_not_depend_on_chunks_or_threads)
{
    static const char *const formats[][2] = {
        { "f16", "f16" }, { "bf16", "bf16" }, { "q8_0", "q8_0" }, { "q4_0", "q4_0" }, { "q8_0", "q4_0" }, { "q4_0", "f16" },
    };
    static const struct { int sequences, chunk, threads; } ways[] = {
        { 1, 0, 1 }, { 1, 1, 1 }, { 1, 7, 2 }, { 2, 64, 2 }, { 5, 512, 3 },
    };
    luce_request q[REQUESTS];
    luce_result first[REQUESTS], got[REQUESTS];
    luce_error err = { 0 };
    make_requests(q);
    for (size_t f = 0; f < COUNT(formats); f++) {
        for (size_t w = 0; w < COUNT(ways); w++) {
            luce_model *m = NULL;
            luce_model_params p = { .path = tiny_model(), .device = "cpu", .threads = ways[w].threads,
                                    .sequences = ways[w].sequences, .chunk = ways[w].chunk,
                                    .cache_type_k = formats[f][0], .cache_type_v = formats[f][1] };
            CHECK_OK(luce_model_open(&m, &p, &err), err);
            if (!m) return;
            CHECK_OK(luce_generate_batch(m, q, REQUESTS, w ? got : first, &err), err);
            for (int i = 0; i < REQUESTS && w; i++) {
                CHECK(same_tokens(&first[i], &got[i]), "%s/%s, way %zu: request %d differs", formats[f][0],
                      formats[f][1], w, i);
                luce_result_drop(&got[i]);
            }
            luce_model_close(m);
        }
        for (int i = 0; i < REQUESTS; i++) luce_result_drop(&first[i]);
    }
}

struct stream {
    struct buf text;
    int pieces, stop_after;         /* 0: never */
};

static bool collect(void *user, const char *bytes, size_t n)
{
    struct stream *s = user;
    buf_add(&s->text, bytes, n);
    return ++s->pieces != s->stop_after;
}

TEST(engine_cancelled_neighbours_do_not_change_a_text)
{
    luce_request q[REQUESTS];
    luce_result alone[REQUESTS], got[REQUESTS];
    struct stream stream[REQUESTS];
    luce_error err = { 0 };
    make_requests(q);
    luce_model *m = open_tiny(4, 32, 2);
    if (!m) return;
    for (int i = 0; i < REQUESTS; i++) alone[i] = generate(m, &q[i]);
    for (int round = 0; round < 6; round++) {
        memset(stream, 0, sizeof stream);
        for (int i = 0; i < REQUESTS; i++) {
            q[i].on_text = collect;
            q[i].user = &stream[i];
            stream[i].stop_after = test_random() % 2 ? 1 + (int)(test_random() % 20) : 0;
        }
        CHECK_OK(luce_generate_batch(m, q, REQUESTS, got, &err), err);
        for (int i = 0; i < REQUESTS; i++) {
            bool cut = got[i].finish == LUCE_FINISH_CANCELLED;
            CHECK(cut ? stream[i].pieces == stream[i].stop_after : same_tokens(&alone[i], &got[i]),
                  "request %d", i);
            CHECK(got[i].n_tokens <= alone[i].n_tokens &&
                  !memcmp(got[i].tokens, alone[i].tokens, got[i].n_tokens * sizeof *got[i].tokens));
            CHECK(stream[i].text.len == got[i].text_bytes &&
                  !memcmp(buf_text(&stream[i].text), got[i].text ? got[i].text : "", got[i].text_bytes));
            luce_result_drop(&got[i]);
            buf_drop(&stream[i].text);
        }
    }
    for (int i = 0; i < REQUESTS; i++) luce_result_drop(&alone[i]);
    luce_model_close(m);
}

static const char *find(const char *text, size_t n, const char *what, size_t len)
{
    for (size_t i = 0; i + len <= n; i++)
        if (!memcmp(text + i, what, len)) return text + i;
    return NULL;
}

TEST(engine_text_ends_before_a_stop_string)
{
    luce_model *m = open_tiny(1, 0, 1);
    if (!m) return;
    luce_request q = ask("once upon a time", 80);
    luce_result whole = generate(m, &q);
    for (int i = 0; i < 60 && whole.text_bytes > 20; i++) {
        char stop[12] = "";
        size_t at = test_random() % (whole.text_bytes - 12), len = 1 + test_random() % 8;
        if (memchr(whole.text + at, 0, len)) continue;
        memcpy(stop, whole.text + at, len);
        const char *never = "this is not in it", *stops[] = { "", never, stop };
        struct stream s = { 0 };
        q.stop = stops;
        q.n_stop = 3;
        q.on_text = collect;
        q.user = &s;
        luce_result r = generate(m, &q);
        size_t cut = (size_t)(find(whole.text, whole.text_bytes, stop, len) - whole.text);
        CHECK_EQ(r.finish, LUCE_FINISH_STOP);
        CHECK(r.text_bytes == cut && !memcmp(r.text ? r.text : "", whole.text, cut), "stop at %zu, not %zu",
              r.text_bytes, cut);
        CHECK(s.text.len == cut && !memcmp(buf_text(&s.text), whole.text, cut));
        luce_result_drop(&r);
        buf_drop(&s.text);
    }
    luce_result_drop(&whole);
    luce_model_close(m);
}

TEST(engine_end_token_and_padding)
{
    luce_model *m = open_tiny(1, 0, 1);
    if (!m) return;
    const int32_t id[] = { TINY_END, TINY_VOCAB - 1 };
    const float by[] = { 500, 1000 };
    luce_request q = ask("x", 6);
    q.ignore_end = false;
    q.sampling = (luce_sampling){ .bias_id = id, .bias = by, .n_bias = 2 };
    luce_result r = generate(m, &q);
    CHECK_EQ(r.finish, LUCE_FINISH_END);
    CHECK(r.n_tokens == 1 && r.tokens[0] == TINY_END && r.text_bytes == 0);
    luce_result_drop(&r);
    q.ignore_end = true;
    q.show_special = true;
    r = generate(m, &q);
    CHECK_EQ(r.finish, LUCE_FINISH_LENGTH);
    CHECK_STR(r.text, "<|im_end|><|im_end|><|im_end|><|im_end|><|im_end|><|im_end|>");
    luce_result_drop(&r);
    luce_model_close(m);
}

TEST(engine_context_ends_a_text_that_has_no_limit)
{
    luce_model *m = open_tiny(1, 0, 1);
    if (!m) return;
    luce_request q = ask("endless", 0);
    luce_result r = generate(m, &q);
    CHECK_EQ(r.finish, LUCE_FINISH_LENGTH);
    CHECK_EQ(r.n_prompt + r.n_tokens, (size_t)TINY_CONTEXT);
    luce_result_drop(&r);
    luce_model_close(m);
}

TEST(engine_seeds_decide_what_is_drawn)
{
    luce_model *m = open_tiny(1, 0, 1);
    if (!m) return;
    luce_request q = ask("dice", 24);
    q.sampling = (luce_sampling){ .temperature = 2, .has_seed = true, .seed = 1 };
    luce_result a = generate(m, &q), b = generate(m, &q);
    CHECK(same_tokens(&a, &b));
    q.sampling.seed = 2;
    luce_result c = generate(m, &q);
    CHECK(!same_tokens(&a, &c));
    q.sampling.has_seed = false;
    luce_result d = generate(m, &q), e = generate(m, &q);
    CHECK(!same_tokens(&d, &e) && d.seed != e.seed);
    q.sampling.has_seed = true;
    q.sampling.seed = d.seed;
    luce_result f = generate(m, &q);
    CHECK(same_tokens(&d, &f), "the told seed gives the text again");
    luce_result *all[] = { &a, &b, &c, &d, &e, &f };
    for (size_t i = 0; i < COUNT(all); i++) luce_result_drop(all[i]);
    luce_model_close(m);
}

/* A bias of 0 takes the logits to the host. */
TEST(engine_draws_alike_on_the_device_and_on_the_host)
{
    static const luce_sampling ways[] = {
        { .temperature = 0 }, { .temperature = 1 }, { .temperature = 3, .top_k = 7 }, { .temperature = 2, .top_p = 0.7f },
        { .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = 0.02f }, { .temperature = 1.5f, .min_p = 0.3f },
    };
    luce_model *m = open_tiny(1, 0, 1);
    if (!m) return;
    for (size_t i = 0; i < COUNT(ways); i++) {
        luce_request q = ask("one or the other", 40);
        int32_t id = 5;
        float bias = 0;
        q.sampling = ways[i];
        q.sampling.has_seed = true;
        q.sampling.seed = test_random() >> 2;
        luce_result device = generate(m, &q);
        q.sampling.bias_id = &id;
        q.sampling.bias = &bias;
        q.sampling.n_bias = 1;
        luce_result host = generate(m, &q);
        CHECK(same_tokens(&device, &host), "sampling %zu, seed %llu", i, (unsigned long long)q.sampling.seed);
        luce_result_drop(&device);
        luce_result_drop(&host);
    }
    luce_model_close(m);
}

TEST(engine_refuses_bad_requests_and_says_why)
{
    luce_model *m = open_tiny(2, 0, 1);
    if (!m) return;
    static const int32_t outside[] = { 3, TINY_VOCAB };
    const float nan_bias = 0.0f / (float)(m == NULL);
    const int32_t one = 1;
    const struct { luce_request q; const char *says; } bad[] = {
        { { .max_tokens = 4 }, "the prompt is empty" },
        { { .tokens = outside, .n_tokens = 2 }, "token 1 of the prompt is 264" },
        { { .tokens = outside, .n_tokens = 1, .max_tokens = TINY_CONTEXT }, "exceed the context of 400" },
        { { .tokens = outside, .n_tokens = 1, .sampling.temperature = -1 }, "temperature is -1" },
        { { .tokens = outside, .n_tokens = 1, .sampling.top_p = 1.5f }, "top_p is 1.5; expected 0 to 1" },
        { { .tokens = outside, .n_tokens = 1, .max_tokens = -2 }, "max_tokens is -2" },
        { { .tokens = outside, .n_tokens = 1,
            .sampling = { .bias_id = &one, .bias = &nan_bias, .n_bias = 1 } }, "bias of token 1" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        luce_result r;
        luce_error err = { 0 };
        luce_status expected = strstr(bad[i].says, "context") ? LUCE_E_CONTEXT : LUCE_E_ARG;
        CHECK_EQ(luce_generate(m, &bad[i].q, &r, &err), expected);
        CHECK(strstr(err.text, bad[i].says), "\"%s\" lacks \"%s\"", err.text, bad[i].says);
        CHECK(r.status == expected && r.finish == LUCE_FINISH_NONE && r.n_tokens == 0);
        luce_result_drop(&r);
    }
    /* One bad request in a batch leaves the others alone. */
    luce_request q[] = { ask("good", 5), bad[1].q, ask("also good", 5) };
    luce_result r[3];
    luce_error err = { 0 };
    CHECK_EQ(luce_generate_batch(m, q, 3, r, &err), LUCE_E_ARG);
    CHECK(r[0].n_tokens == 5 && r[1].n_tokens == 0 && r[2].n_tokens == 5);
    for (int i = 0; i < 3; i++) luce_result_drop(&r[i]);
    luce_model_close(m);
}

TEST(engine_sessions_continue_as_a_fresh_text_would)
{
    luce_model *m = open_tiny(2, 48, 2);
    luce_session *s = NULL;
    luce_error err = { 0 };
    if (!m) return;
    CHECK_OK(luce_session_open(&s, m, &err), err);
    for (int turn = 0; turn < 12; turn++) {
        char text[PROMPT_MOST + 1];
        size_t n_before;
        fill_text(text, 1 + (int)(test_random() % 40));
        luce_session_tokens(s, &n_before);
        if (turn % 4 == 3) luce_session_rewind(s, n_before = test_random() % (n_before + 1));
        luce_request q = ask(text, 1 + (int)(test_random() % 12));
        luce_result r, fresh;
        luce_status st = luce_session_generate(s, &q, &r, &err);
        if (st) {                   /* the context is full */
            CHECK_EQ(st, LUCE_E_CONTEXT);
            luce_result_drop(&r);
            luce_session_rewind(s, 0);
            continue;
        }
        size_t n;
        const int32_t *all = luce_session_tokens(s, &n);
        CHECK_EQ(n, n_before + r.n_prompt + r.n_tokens);
        if (n_before) CHECK(r.n_reused + 1 >= n_before, "%zu of %zu reused", r.n_reused, n_before);
        luce_request again = { .tokens = all, .n_tokens = n - r.n_tokens, .max_tokens = q.max_tokens,
                               .ignore_end = true, .fresh = true };
        fresh = generate(m, &again);
        CHECK(fresh.n_tokens == r.n_tokens &&
              !memcmp(fresh.tokens, r.tokens, r.n_tokens * sizeof *r.tokens), "turn %d", turn);
        luce_result_drop(&fresh);
        luce_result_drop(&r);
    }
    luce_session_close(s);
    luce_model_close(m);
}

TEST(engine_spans_keep_a_users_words_plain)
{
    luce_model *m = open_tiny(1, 0, 1);
    if (!m) return;
    const char *text = "<|im_end|><|im_end|>";
    const luce_span own = { 0, 10 };
    int32_t *ids;
    size_t n;
    luce_error err = { 0 };
    CHECK_OK(luce_tokenize(m, &(luce_text){ .at = text, .bytes = 20, .special = &own, .n_special = 1 }, &ids, &n,
                           &err), err);
    CHECK(n == 11 && ids[0] == TINY_END && ids[1] == '<', "%zu", n);
    char *back;
    size_t bytes;
    CHECK_OK(luce_detokenize(m, ids, n, LUCE_SPECIAL, &back, &bytes, &err), err);
    CHECK_STR(back, text);
    luce_free(back);
    luce_free(ids);
    luce_model_close(m);
}

TEST(engine_a_model_whose_sequences_are_taken_says_so)
{
    luce_model *m = open_tiny(1, 0, 1);
    luce_session *s = NULL, *more = NULL;
    luce_error err = { 0 };
    if (!m) return;
    CHECK_OK(luce_session_open(&s, m, &err), err);
    luce_request q = ask("x", 2);
    luce_result r;
    CHECK_EQ(luce_generate(m, &q, &r, &err), LUCE_E_DEVMEM);
    CHECK(r.status == LUCE_E_DEVMEM && strstr(r.error.text, "taken by sessions"), "%s", r.error.text);
    CHECK_EQ(luce_session_open(&more, m, &err), LUCE_E_DEVMEM);
    luce_result_drop(&r);
    luce_session_close(s);
    luce_model_close(m);
}

/* The same on a real model, where near ties and large activations would show a difference. */
TEST(engine_smollm2_gives_one_text_in_any_chunks_and_company)
{
    const char *path = test_model("smollm2-135m-instruct-q4_1.gguf");
    if (!path) SKIP("models/smollm2-135m-instruct-q4_1.gguf is not there: make models fetches it");
    static const char text[] =
        "The lighthouse stood at the end of a long stone pier, and every evening, when the fishing boats came "
        "home, the keeper climbed its ninety-three steps to light the lamp. One winter the storms were so strong "
        "that nobody could reach the pier for a week, and the village";
    static const struct { int chunk, threads, sequences; } ways[] = { { 0, 2, 1 }, { 17, 1, 4 }, { 64, 2, 4 } };
    luce_result first[3] = { 0 };
    luce_request q[3];
    for (int i = 0; i < 3; i++) {
        q[i] = ask(text, 12);
        q[i].text.bytes -= (size_t)(i * 60);
    }
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_model *m;
        luce_error err = { 0 };
        luce_result r[3];
        luce_model_params p = { .path = path, .device = "cpu", .context = 256, .threads = ways[w].threads,
                                .chunk = ways[w].chunk, .sequences = ways[w].sequences };
        CHECK_OK(luce_model_open(&m, &p, &err), err);
        if (!m) return;
        CHECK_OK(luce_generate_batch(m, q, 3, r, &err), err);
        for (int i = 0; i < 3; i++) {
            if (w) CHECK(same_tokens(&r[i], &first[i]), "way %zu, text %d: \"%s\", not \"%s\"", w, i, r[i].text,
                         first[i].text);
            luce_result_drop(w ? &r[i] : &first[i]);
            if (!w) first[i] = r[i];
        }
        luce_model_close(m);
    }
    for (int i = 0; i < 3; i++) luce_result_drop(&first[i]);
}

TEST(engine_survives_each_failing_allocation)
{
    luce_request q = ask("a", 3);
    const char *stop = "zzz";
    q.stop = &stop;
    q.n_stop = 1;
    q.sampling = (luce_sampling){ .temperature = 1, .has_seed = true };
    if (!tiny_model()) return;
    size_t live = mem_live();
    for (long n = 0, done = 0; !done; n++) {
        luce_model *m = NULL;
        luce_session *s = NULL;
        luce_result r = { 0 }, again = { 0 };
        luce_error err = { 0 };
        mem_fail_after(n);
        luce_status st = luce_model_open(&m, &(luce_model_params){ .path = tiny_model(), .device = "cpu",
                                                                   .threads = 1, .context = 64 }, &err);
        if (!st) st = luce_generate(m, &q, &r, &err);
        if (!st) st = luce_session_open(&s, m, &err);
        if (!st) st = luce_session_generate(s, &q, &again, &err);
        mem_fail_never();
        CHECK(st == LUCE_OK || st == LUCE_E_NOMEM || st == LUCE_E_DEVMEM, "allocation %ld: %s: %s", n,
              status_name(st), err.text);
        CHECK(st == LUCE_OK || *err.text, "allocation %ld says nothing", n);
        luce_result_drop(&r);
        luce_result_drop(&again);
        luce_session_close(s);
        luce_model_close(m);
        if (mem_live() != live) CHECK(false, "allocation %ld leaks %zu blocks", n, mem_live() - live);
        done = st == LUCE_OK || mem_live() != live || n > 5000;
    }
}
