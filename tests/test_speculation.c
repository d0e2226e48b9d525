/* tests/test_speculation.c - texts with guesses are the texts without, token by token: every drafter,
 * chains and trees, narrow and wide, greedy and drawn, alone and in company; ends inside a block,
 * cancelling, other vocabularies, failures. */
#include "base/buf.h"
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
    luce_result r = generate(m, &q[0]);
    CHECK_EQ(r.speculation.n_accepted, r.speculation.n_drafted);
    CHECK(r.speculation.n_steps <= (TOKENS + 4) / 6 + 1, "%zu steps", r.speculation.n_steps);
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
