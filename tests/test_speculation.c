/* tests/test_speculation.c - texts with guesses are the texts without, token by token: every drafter,
 * chains and trees, narrow and wide, greedy and drawn, alone and in company; ends inside a block,
 * cancelling, other vocabularies, failures. */
#include "base/buf.h"
#include "base/file.h"
#include "engine/inside.h"
#include "gguf/reader.h"
#include "test.h"
#include "tiny_model.h"

enum { TEXTS = 5, TOKENS = 48, PROMPT_MOST = 160 };

struct way {                        /* to speculate */
    const char *drafter;
    bool file;                      /* the model drafts for itself */
    int most, block, draft;         /* draft: of the request */
};

static luce_model *open_model(const char *path, const struct way *way, int sequences, int context)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    luce_model_params p = { .path = path, .device = "cpu", .threads = 2, .sequences = sequences, .context = context,
                            .drafter = way->drafter, .draft_path = way->file ? path : NULL, .draft_max = way->most,
                            .draft_block_size = way->block };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    return m;
}

static luce_result generate(luce_model *m, const luce_request *q)
{
    luce_result r;
    luce_error err = { 0 };
    CHECK_OK(luce_generate(m, q, &r, &err), err);
    return r;
}

static void check_same(const luce_result *plain, const luce_result *got, const char *what, int i)
{
    size_t at = 0;
    while (at < plain->n_tokens && at < got->n_tokens && plain->tokens[at] == got->tokens[at]) at++;
    CHECK(at == plain->n_tokens && at == got->n_tokens, "%s, text %d: token %zu of %zu (%zu) differs", what, i, at,
          plain->n_tokens, got->n_tokens);
    CHECK(plain->finish == got->finish && plain->text_bytes == got->text_bytes &&
          (!plain->text_bytes || !memcmp(plain->text, got->text, plain->text_bytes)), "%s, text %d: other bytes", what,
          i);
    const luce_speculation *s = &got->speculation;
    if (got->n_tokens) CHECK_EQ(s->n_steps + s->n_accepted, got->n_tokens - 1);
    CHECK(s->n_accepted <= s->n_drafted);
}

static char prompts[TEXTS][PROMPT_MOST + 1];

/* Greedy, drawn, with penalties, with a bias; some prompts repeat themselves. */
static void make_requests(luce_request *q, int draft)
{
    static const luce_sampling sampling[TEXTS] = {
        { .temperature = 0 },
        { .temperature = 0.7f, .has_seed = true, .seed = 5 },
        { .repetition_penalty = 1.3f, .presence_penalty = 0.2f },
        { .temperature = 1.2f, .top_k = 20, .top_p = 0.9f, .frequency_penalty = 0.3f, .has_seed = true, .seed = 6 },
        { .temperature = 0.2f, .min_p = 0.1f, .has_seed = true, .seed = 7 },
    };
    for (int i = 0; i < TEXTS; i++)
        q[i] = (luce_request){ .text = { .at = prompts[i], .bytes = strlen(prompts[i]) }, .sampling = sampling[i],
                               .max_tokens = TOKENS + 3 * i, .ignore_end = true, .draft = draft };
}

static void make_prompts(void)
{
    for (int i = 0; i < TEXTS; i++) {
        int n = 10 + (int)(test_random() % (PROMPT_MOST - 10)), period = 3 + (int)(test_random() % 30);
        for (int k = 0; k < n; k++)
            prompts[i][k] = i % 2 && k >= period ? prompts[i][k - period] : (char)('a' + test_random() % 26);
        prompts[i][n] = '\0';
    }
}

static void check_way(const char *path, const struct way *way, const luce_result *plain)
{
    char what[100];
    luce_request q[TEXTS];
    luce_result got[TEXTS];
    luce_error err = { 0 };
    snprintf(what, sizeof what, "%s, max %d, block %d, draft %d", way->drafter, way->most, way->block, way->draft);
    luce_model *m = open_model(path, way, TEXTS, 256);
    if (!m) return;
    make_requests(q, way->draft);
    for (int i = 0; i < TEXTS; i++) {
        q[i].script = plain[i].tokens;
        q[i].n_script = plain[i].n_tokens;
        q[i].script_right = 2.5;
        got[i] = generate(m, &q[i]);
        check_same(&plain[i], &got[i], what, i);
        luce_result_drop(&got[i]);
    }
    CHECK_OK(luce_generate_batch(m, q, TEXTS, got, &err), err);
    for (int i = 0; i < TEXTS; i++) {
        check_same(&plain[i], &got[i], what, i);
        luce_result_drop(&got[i]);
    }
    luce_model_close(m);
}

static void plain_texts(const char *path, luce_result *plain)
{
    luce_request q[TEXTS];
    static const struct way none = { "none", false, 0, 0, 0 };
    luce_model *m = open_model(path, &none, 1, 256);
    if (!m) return;
    make_requests(q, 0);
    for (int i = 0; i < TEXTS; i++) plain[i] = generate(m, &q[i]);
    luce_model_close(m);
}

static void drop_texts(luce_result *r)
{
    for (int i = 0; i < TEXTS; i++) luce_result_drop(&r[i]);
}

TEST(speculation_keeps_the_text_in_every_way)
{
    static const struct way ways[] = {
        { "ngram", false, 0, 0, 0 },   { "ngram", false, 3, 4, 3 },    { "ngram", false, 7, 8, 7 },
        { "ngram", false, 31, 8, 31 }, { "ngram", false, 63, 64, 63 }, { "ngram", false, 1, 2, 1 },
        { "draft-model", true, 0, 0, 0 }, { "draft-model", true, 1, 2, 1 }, { "draft-model", true, 7, 8, 7 },
        { "draft-model", true, 15, 5, 15 }, { "draft-model", true, 31, 32, 31 },
        { "scripted", false, 2, 3, 2 }, { "scripted", false, 15, 16, 15 }, { "scripted", false, 31, 32, 31 },
        { "scripted", false, 0, 0, 0 }, { "ngram", false, 0, 0, -1 },
    };
    luce_result plain[TEXTS];
    const char *path = tiny_model();
    if (!path) return;
    make_prompts();
    plain_texts(path, plain);
    for (size_t w = 0; w < COUNT(ways); w++) check_way(path, &ways[w], plain);
    drop_texts(plain);
}

TEST(speculation_with_the_model_as_its_own_drafter_accepts_everything)
{
    static const struct way way = { "draft-model", true, 5, 6, 5 };
    const char *path = tiny_model();
    if (!path) return;
    luce_model *m = open_model(path, &way, 1, 256);
    if (!m) return;
    make_prompts();
    luce_request q[TEXTS];
    make_requests(q, 5);
    q[0].max_tokens = 1 + 6 * 9;            /* so that the last block is whole */
    luce_result r = generate(m, &q[0]);
    CHECK_EQ(r.speculation.n_accepted, r.speculation.n_drafted);
    CHECK_EQ(r.speculation.n_steps, 9);
    CHECK_STR(luce_model_describe(m).drafter, "draft-model");
    luce_result_drop(&r);
    luce_model_close(m);
}

/* A script that is right for k tokens gives k + 1 a step. */
TEST(speculation_scripts_are_accepted_as_told)
{
    static const struct way way = { "scripted", false, 15, 16, 15 };
    const char *path = tiny_model();
    if (!path) return;
    luce_result plain[TEXTS];
    make_prompts();
    plain_texts(path, plain);
    luce_model *m = open_model(path, &way, 1, 256);
    for (int right = 0; m && right <= 15; right++) {
        luce_request q[TEXTS];
        make_requests(q, 15);
        q[0].script = plain[0].tokens;
        q[0].n_script = plain[0].n_tokens;
        q[0].script_right = right;
        luce_result r = generate(m, &q[0]);
        check_same(&plain[0], &r, "scripted", right);
        CHECK_EQ(r.speculation.n_steps, (TOKENS - 1 + right) / (right + 1));
        luce_result_drop(&r);
    }
    luce_model_close(m);
    drop_texts(plain);
}

static bool stop_later(void *user)
{
    int *left = user;
    return --*left < 0;
}

static bool stop_in_text(void *user, const char *bytes, size_t n)
{
    (void)bytes, (void)n;
    return stop_later(user) == false;
}

/* P06: whoever leaves, and whenever, the others and the next ones are not touched, and every sequence
 * is free again. */
TEST(speculation_survives_texts_that_are_cancelled_in_the_middle)
{
    static const struct way ways[] = { { "ngram", false, 0, 0, 7 }, { "draft-model", true, 0, 0, 5 } };
    luce_result plain[TEXTS], got[TEXTS];
    const char *path = tiny_model();
    luce_error err = { 0 };
    if (!path) return;
    make_prompts();
    plain_texts(path, plain);
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_model *m = open_model(path, &ways[w], 3, 256);
        for (int round = 0; m && round < 20; round++) {
            luce_request q[TEXTS];
            int left[TEXTS];
            make_requests(q, ways[w].draft);
            for (int i = 0; i < TEXTS; i++) {
                left[i] = (int)(test_random() % 40);
                q[i].user = &left[i];
                if (i % 2) q[i].cancelled = stop_later;
                else q[i].on_text = stop_in_text;
            }
            CHECK_OK(luce_generate_batch(m, q, TEXTS, got, &err), err);
            for (int i = 0; i < TEXTS; i++) {
                if (got[i].finish == LUCE_FINISH_LENGTH) check_same(&plain[i], &got[i], "cancelled neighbours", i);
                CHECK(got[i].n_tokens <= plain[i].n_tokens &&
                      (!got[i].n_tokens ||
                       !memcmp(got[i].tokens, plain[i].tokens, got[i].n_tokens * sizeof *got[i].tokens)));
                luce_result_drop(&got[i]);
            }
        }
        luce_session *s[3];             /* all sequences can be had */
        for (int i = 0; m && i < 3; i++) CHECK_OK(luce_session_open(&s[i], m, &err), err);
        for (int i = 0; m && i < 3; i++) luce_session_close(s[i]);
        luce_model_close(m);
    }
    drop_texts(plain);
}

/* P16: an end token or a stop string at each place of a block ends the text there, and what counts is
 * what was let out. */
TEST(speculation_ends_inside_a_block_as_plain_decoding_does)
{
    static const struct way way = { "scripted", false, 15, 16, 7 };
    const char *path = tiny_model();
    luce_result plain[TEXTS];
    if (!path) return;
    make_prompts();
    plain_texts(path, plain);
    luce_model *m = open_model(path, &way, 1, 256);
    for (int at = 0; m && at < 10; at++) {
        luce_request q[TEXTS];
        make_requests(q, 7);
        q[0].script = plain[0].tokens;
        q[0].n_script = plain[0].n_tokens;
        q[0].script_right = 7;
        /* A stop string of one character that is in the text first at some place. */
        char stop[2] = { plain[0].text_bytes > (size_t)at ? plain[0].text[at] : 'x', 0 };
        const char *stops[] = { stop };
        if (stop[0] > 0) {
            q[0].stop = stops;
            q[0].n_stop = 1;
        }
        luce_result got = generate(m, &q[0]);
        q[0].draft = -1;
        luce_result want = generate(m, &q[0]);
        check_same(&want, &got, "stop string", at);
        luce_result_drop(&got);
        luce_result_drop(&want);
    }
    /* The end token, made the likeliest one by a penalty on all others that came before. */
    for (int at = 0; m && at < 8; at++) {
        luce_request q[TEXTS];
        make_requests(q, 7);
        const int32_t id[] = { TINY_END };
        const float by[] = { 0.5f * (float)at };
        q[0].ignore_end = false;
        q[0].sampling = (luce_sampling){ .temperature = 1.5f, .has_seed = true, .seed = (uint64_t)at, .bias_id = id,
                                         .bias = by, .n_bias = 1 };
        q[0].draft = -1;
        luce_result want = generate(m, &q[0]);
        q[0].draft = 7;
        q[0].script = want.tokens;
        q[0].n_script = want.n_tokens;
        q[0].script_right = 7;
        luce_result got = generate(m, &q[0]);
        check_same(&want, &got, "end token", at);
        luce_result_drop(&got);
        luce_result_drop(&want);
    }
    luce_model_close(m);
    drop_texts(plain);
}

/* P10: each field of sampling, with and without guesses, at temperature 0. */
TEST(speculation_keeps_the_text_under_each_sampling_field)
{
    static const int32_t id[] = { 'a', 'b' };
    static const float by[] = { 2, -3 };
    static const luce_sampling fields[] = {
        { .presence_penalty = 0.5f }, { .frequency_penalty = 0.7f }, { .repetition_penalty = 1.3f },
        { .repetition_penalty = 1.1f, .penalty_window = 4 }, { .bias_id = id, .bias = by, .n_bias = 2 },
        { .top_k = 5, .top_p = 0.5f, .min_p = 0.2f },
    };
    static const struct way ways[] = { { "ngram", false, 0, 0, 15 }, { "draft-model", true, 0, 0, 7 },
                                       { "scripted", false, 15, 16, 15 } };
    const char *path = tiny_model();
    if (!path) return;
    make_prompts();
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_model *m = open_model(path, &ways[w], 1, 256);
        for (size_t f = 0; m && f < COUNT(fields) * 2; f++) {
            luce_request q[TEXTS];
            make_requests(q, -1);
            q[1].sampling = fields[f / 2];
            if (f % 2) q[1].sampling.temperature = 0.8f, q[1].sampling.has_seed = true, q[1].sampling.seed = f;
            luce_result want = generate(m, &q[1]);
            q[1].draft = ways[w].draft;
            q[1].script = want.tokens;
            q[1].n_script = want.n_tokens;
            q[1].script_right = 6;
            luce_result got = generate(m, &q[1]);
            check_same(&want, &got, ways[w].drafter, (int)f);
            luce_result_drop(&got);
            luce_result_drop(&want);
        }
        luce_model_close(m);
    }
}

TEST(speculation_sessions_continue_as_plain_ones)
{
    static const struct way ways[] = { { "ngram", false, 0, 0, 7 }, { "draft-model", true, 0, 0, 5 } };
    const char *path = tiny_model();
    luce_error err = { 0 };
    if (!path) return;
    make_prompts();
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_model *m = open_model(path, &ways[w], 2, 400);
        luce_session *s[2] = { NULL, NULL };
        for (int i = 0; m && i < 2; i++) CHECK_OK(luce_session_open(&s[i], m, &err), err);
        for (int turn = 0; m && turn < 6; turn++) {
            luce_result r[2];
            size_t n;
            for (int i = 0; i < 2; i++) {
                luce_request q = { .text = { .at = prompts[turn % TEXTS], .bytes = 12 }, .max_tokens = 20 + turn,
                                   .ignore_end = true, .fresh = true, .draft = i ? -1 : ways[w].draft };
                CHECK_OK(luce_session_generate(s[i], &q, &r[i], &err), err);
                luce_session_tokens(s[i], &n);
                if (turn == 3) luce_session_rewind(s[i], n - 9);
            }
            check_same(&r[1], &r[0], "session", turn);
            CHECK_EQ(r[0].n_reused, r[1].n_reused);
            for (int i = 0; i < 2; i++) luce_result_drop(&r[i]);
        }
        for (int i = 0; i < 2; i++) luce_session_close(s[i]);
        luce_model_close(m);
    }
}

TEST(speculation_fills_the_context_to_the_last_position)
{
    static const struct way way = { "draft-model", true, 31, 16, 31 };
    const char *path = tiny_model();
    if (!path) return;
    make_prompts();
    luce_model *m = open_model(path, &way, 1, 90);
    luce_request q[TEXTS];
    make_requests(q, 31);
    q[0].text.bytes = 10;
    q[0].max_tokens = 0;
    luce_result got = generate(m, &q[0]);
    q[0].draft = -1;
    luce_result want = generate(m, &q[0]);
    CHECK_EQ(got.n_prompt + got.n_tokens, 90);
    check_same(&want, &got, "context", 0);
    luce_result_drop(&got);
    luce_result_drop(&want);
    luce_model_close(m);
}

/* P03 and other things that cannot work. */
TEST(speculation_refuses_what_cannot_work_and_says_why)
{
    const char *tiny = tiny_model();
    if (!tiny) return;
    static char cut[600];
    struct buf whole = { 0 };
    luce_error err = { 0 };
    snprintf(cut, sizeof cut, "%s", scratch("cut.gguf"));
    CHECK_OK(file_read(&whole, tiny, 1 << 24, &err), err);
    FILE *f = fopen(cut, "wb");
    if (f) fwrite(whole.data, 1, whole.len - 5000, f), fclose(f);
    buf_drop(&whole);
    const struct { luce_model_params p; luce_status status; const char *says; } bad[] = {
        { { .drafter = "crystal-ball" }, LUCE_E_ARG, "known: none, ngram, draft-model, dflash, dflash2, mtp, scripted" },
        { { .drafter = "ngram", .draft_path = tiny }, LUCE_E_ARG, "takes no file" },
        { { .drafter = "none", .draft_path = tiny }, LUCE_E_ARG, "takes no file" },
        { { .drafter = "draft-model" }, LUCE_E_ARG, "needs a file (--draft)" },
        { { .drafter = "ngram", .draft_max = 64 }, LUCE_E_ARG, "expected 1 to 63" },
        { { .drafter = "ngram", .draft_block_size = 1 }, LUCE_E_ARG, "expected 2 to 64" },
        { { .draft_path = "no_such.gguf" }, LUCE_E_IO, "no_such.gguf" },
        { { .draft_path = cut }, LUCE_E_FORMAT, "cut.gguf" },
        { { .draft_path = fixture("oracle/llama.gguf") }, LUCE_E_ARG, "no vocabulary" },
        { { .draft_path = tiny_model_with("QQ", TINY_CONTEXT) }, LUCE_E_ARG, "token 258 is 'QQ' there and 'th' in the model" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        luce_model *m = NULL;
        luce_model_params p = bad[i].p;
        size_t live = mem_live();
        p.path = tiny;
        p.device = "cpu";
        p.threads = 1;
        err = (luce_error){ 0 };
        CHECK_EQ(luce_model_open(&m, &p, &err), bad[i].status);
        CHECK(strstr(err.text, bad[i].says), "row %zu: \"%s\" lacks \"%s\"", i, err.text, bad[i].says);
        CHECK_EQ(m, NULL);
        CHECK_EQ(mem_live(), live);
        luce_model_close(m);
    }
    static const struct way none = { "none", false, 0, 0, 0 };
    luce_model *m = open_model(tiny, &none, 1, 64);
    luce_result r;
    luce_request q = { .text = { .at = "x", .bytes = 1 }, .draft = 4 };
    CHECK_EQ(luce_generate(m, &q, &r, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "loaded without a drafter"), "%s", err.text);
    luce_result_drop(&r);
    q.draft = 64;
    CHECK_EQ(luce_generate(m, &q, &r, &err), LUCE_E_ARG);
    CHECK(strstr(err.text, "draft is 64; expected -1 to 63"), "%s", err.text);
    luce_result_drop(&r);
    luce_model_close(m);
}

TEST(speculation_survives_each_failing_allocation)
{
    static const struct way ways[] = { { "ngram", false, 0, 0, 3 }, { "draft-model", true, 0, 0, 3 },
                                       { "scripted", false, 0, 0, 3 } };
    const char *path = tiny_model();
    if (!path) return;
    for (size_t w = 0; w < COUNT(ways); w++) {
        size_t live = mem_live();
        for (long n = 0, done = 0; !done; n++) {
            luce_model *m = NULL;
            luce_result r = { 0 };
            luce_error err = { 0 };
            luce_model_params p = { .path = path, .device = "cpu", .threads = 1, .context = 64,
                                    .drafter = ways[w].drafter, .draft_path = ways[w].file ? path : NULL };
            luce_request q = { .text = { .at = "abcabc", .bytes = 6 }, .max_tokens = 6, .ignore_end = true,
                               .draft = ways[w].draft };
            mem_fail_after(n);
            luce_status st = luce_model_open(&m, &p, &err);
            if (!st) st = luce_generate(m, &q, &r, &err);
            mem_fail_never();
            CHECK(st == LUCE_OK || st == LUCE_E_NOMEM || st == LUCE_E_DEVMEM, "%s, allocation %ld: %s: %s",
                  ways[w].drafter, n, status_name(st), err.text);
            CHECK(st == LUCE_OK || *err.text, "allocation %ld says nothing", n);
            luce_result_drop(&r);
            luce_model_close(m);
            if (mem_live() != live) CHECK(false, "allocation %ld leaks %zu blocks", n, mem_live() - live);
            done = st == LUCE_OK || mem_live() != live || n > 5000;
        }
    }
}

static bool disturb_clock(void *user)
{
    speculator_time(user, 1 + (int)(test_random() % 64), test_uniform(0, 1e-2));
    return false;
}

TEST(speculation_keeps_the_text_whatever_the_clock_says)
{
    static const struct way ways[] = { { "ngram", false, 0, 0, 0 }, { "draft-model", true, 0, 0, 0 },
                                       { "scripted", false, 0, 0, 0 } };
    luce_result plain[TEXTS], got[TEXTS];
    luce_error err = { 0 };
    const char *path = tiny_model();
    if (!path) return;
    make_prompts();
    plain_texts(path, plain);
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_model *m = open_model(path, &ways[w], TEXTS, 256);
        for (int round = 0; m && round < 5; round++) {
            luce_request q[TEXTS];
            make_requests(q, 0);
            for (int i = 0; i < TEXTS; i++) {
                q[i].cancelled = disturb_clock;
                q[i].user = m->speculator;
                q[i].script = plain[i].tokens;
                q[i].n_script = plain[i].n_tokens;
                q[i].script_right = 4;
            }
            CHECK_OK(luce_generate_batch(m, q, TEXTS, got, &err), err);
            for (int i = 0; i < TEXTS; i++) {
                check_same(&plain[i], &got[i], ways[w].drafter, i);
                luce_result_drop(&got[i]);
            }
        }
        luce_model_close(m);
    }
    drop_texts(plain);
}

/* On a real model, whose near ties and large activations would show a difference; its own draft model
 * is always right. */
TEST(speculation_keeps_the_text_of_smollm2)
{
    static const struct way ways[] = { { "none", false, 0, 0, 0 }, { "ngram", false, 31, 16, 31 },
                                       { "ngram", false, 0, 0, 0 }, { "draft-model", true, 5, 6, 5 } };
    static const char *const texts[TEXTS] = {
        "one two three four one two three four one two three", "The capital of France is",
        "int add(int a, int b)\n{\n    return a + b;\n}\n\nint sub(int a, int b)\n{\n", "A list:\n- red\n- green\n- red\n-",
        "Once upon a time there was",
    };
    const char *path = test_model("smollm2-135m-instruct-q4_1.gguf");
    luce_result plain[TEXTS] = { 0 };
    luce_error err = { 0 };
    if (!path) SKIP("models/smollm2-135m-instruct-q4_1.gguf is not there: make models fetches it");
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_model *m = open_model(path, &ways[w], TEXTS, 256);
        luce_request q[TEXTS];
        luce_result got[TEXTS];
        if (!m) return;
        make_requests(q, ways[w].draft);
        for (int i = 0; i < TEXTS; i++) {
            q[i].text = (luce_text){ .at = texts[i], .bytes = strlen(texts[i]) };
            q[i].max_tokens = 13;
        }
        CHECK_OK(luce_generate_batch(m, q, TEXTS, got, &err), err);
        if (ways[w].file) CHECK_EQ(got[0].speculation.n_accepted, got[0].speculation.n_drafted);
        for (int i = 0; i < TEXTS; i++) {
            if (w) check_same(&plain[i], &got[i], ways[w].drafter, i);
            luce_result_drop(w ? &got[i] : &plain[i]);
            if (!w) plain[i] = got[i];
        }
        luce_model_close(m);
    }
    drop_texts(plain);
}

/* P15: settings act with guesses, and penalties see the prompt. */
TEST(speculation_does_not_lose_the_settings_of_sampling)
{
    static const struct way ways[] = { { "ngram", false, 0, 0, 7 }, { "draft-model", true, 0, 0, 5 } };
    static const luce_sampling settings[] = {
        { .temperature = 0 }, { .temperature = 1.5f, .has_seed = true, .seed = 1 },
        { .temperature = 1.5f, .has_seed = true, .seed = 2 }, { .repetition_penalty = 1.3f },
    };
    const char *path = tiny_model();
    if (!path) return;
    for (size_t w = 0; w < COUNT(ways); w++) {
        luce_result r[COUNT(settings)];
        luce_model *m = open_model(path, &ways[w], 1, 256);
        if (!m) return;
        for (size_t i = 0; i < COUNT(settings); i++) {
            luce_request q = { .text = { .at = "abcabcabcabcabcabc", .bytes = 18 }, .sampling = settings[i],
                               .max_tokens = 40, .ignore_end = true, .draft = ways[w].draft };
            r[i] = generate(m, &q);
            for (size_t k = 0; k < i; k++)
                CHECK(memcmp(r[i].tokens, r[k].tokens, 40 * sizeof *r[i].tokens), "settings %zu and %zu: one text", i, k);
        }
        /* The first token sees nothing but the prompt: a penalty that forbids all of it shows. */
        luce_request q = { .text = { .at = "abc", .bytes = 3 }, .max_tokens = 30, .ignore_end = true,
                           .sampling = { .presence_penalty = 100 }, .draft = ways[w].draft };
        luce_result once = generate(m, &q);
        for (size_t i = 0; i < once.n_tokens; i++) {
            CHECK(once.tokens[i] != 'a' && once.tokens[i] != 'b' && once.tokens[i] != 'c');
            for (size_t k = 0; k < i; k++) CHECK(once.tokens[i] != once.tokens[k], "token %d twice", once.tokens[i]);
        }
        luce_result_drop(&once);
        for (size_t i = 0; i < COUNT(settings); i++) luce_result_drop(&r[i]);
        luce_model_close(m);
    }
}
