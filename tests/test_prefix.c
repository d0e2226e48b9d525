/* tests/test_prefix.c - texts that have ended stay in the cache, and give others the same words: random walks
 * against cold runs, chats that grow, what is forgotten. */
#include <string.h>

#include "engine/inside.h"
#include "test.h"
#include "tiny_model.h"

enum { TREES = 6, LONGEST = 300, WALK = 200, MOST_AT_ONCE = 3 };

struct way {
    const char *model, *drafter, *draft;
    int context;
};

static luce_model *open_way(const struct way *w, int sequences, int64_t positions, int chunk, luce_prefix_reuse reuse)
{
    char path[512], draft[512];
    luce_model *m = NULL;
    luce_error err = { 0 };
    snprintf(path, sizeof path, "%s", w->model ? fixture(w->model) : tiny_model());
    if (w->draft) snprintf(draft, sizeof draft, "%s", *w->draft ? fixture(w->draft) : path);
    luce_model_params p = { .path = path, .device = "cpu", .threads = 1, .context = w->context, .sequences = sequences,
                            .cache_positions = positions, .chunk = chunk, .prefix_reuse = reuse, .drafter = w->drafter,
                            .draft_path = w->draft ? draft : NULL };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    return m;
}

struct text {
    int32_t id[LONGEST];
    int n;
};

static int32_t any_id(const luce_model *m)
{
    int vocab = m->vocab ? 250 : luce_model_describe(m).vocabulary;
    return (int32_t)(test_random() % (unsigned)vocab);
}

static void add_random(struct text *t, int n, const luce_model *m)
{
    while (n-- > 0 && t->n < LONGEST - 40) t->id[t->n++] = any_id(m);
}

static bool same(const luce_result *a, const luce_result *b)
{
    return a->n_tokens == b->n_tokens && a->finish == b->finish &&
           (!a->n_tokens || !memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens));
}

static bool tick(void *user)
{
    return --*(int *)user == 0;
}

static size_t found;                /* in the cache, by all requests of a walk */

/* A text goes on, is edited, cut, or taken from another tree. */
static void change(struct text *all, const luce_model *m)
{
    struct text *t = &all[test_random() % TREES];
    int what = (int)(test_random() % 8);
    if (what == 0) *t = all[test_random() % TREES];
    if (what == 1) t->n = 1 + (int)(test_random() % (unsigned)t->n);
    if (what == 2) t->id[test_random() % (unsigned)t->n] = any_id(m);
    if (what == 3) t->n = 0;
    if (t->n > LONGEST - 100) t->n = 70;
    add_random(t, what < 4 ? 1 + (int)(test_random() % 90) : (int)(test_random() % 40) + (t->n == 0), m);
}

static void ask_some(struct text *all, luce_model *m, luce_model *cold, const struct way *w)
{
    struct text *t[MOST_AT_ONCE];
    luce_request q[MOST_AT_ONCE];
    luce_result got[MOST_AT_ONCE], want;
    luce_error err = { 0 };
    int n = 1 + (int)(test_random() % MOST_AT_ONCE), ticks[MOST_AT_ONCE];
    for (int i = 0; i < n; i++) {
        t[i] = &all[test_random() % TREES];
        ticks[i] = test_random() % 4 ? 0 : 1 + (int)(test_random() % 8);
        q[i] = (luce_request){ .tokens = t[i]->id, .n_tokens = (size_t)t[i]->n, .ignore_end = true,
                               .max_tokens = 1 + (int)(test_random() % 30), .cancelled = tick, .user = &ticks[i],
                               .draft = test_random() % 3 ? 0 : -1, .fresh = test_random() % 10 == 0 };
        if (test_random() % 3 == 0)
            q[i].sampling = (luce_sampling){ .temperature = 1, .has_seed = true, .seed = test_random() % 99 };
    }
    CHECK_OK(luce_generate_batch(m, q, n, got, &err), err);
    for (int i = 0; i < n; i++) {
        luce_request again = q[i];
        again.cancelled = NULL;
        again.draft = 0;
        CHECK_OK(luce_generate(cold, &again, &want, &err), err);
        bool begins = got[i].finish == LUCE_FINISH_CANCELLED && got[i].n_tokens <= want.n_tokens &&
                      (!got[i].n_tokens || !memcmp(got[i].tokens, want.tokens, got[i].n_tokens * sizeof *want.tokens));
        CHECK(begins || same(&got[i], &want), "%s %s: another text than cold", w->model ? w->model : "tiny",
              w->drafter ? w->drafter : "");
        CHECK(got[i].n_reused % PAGE == 0 && got[i].n_reused < got[i].n_prompt);
        CHECK(!q[i].fresh || got[i].n_reused == 0);
        CHECK_EQ(want.n_reused, 0);
        found += got[i].n_reused;
        luce_result_drop(&want);
    }
    for (int i = 0; i < n; i++) {       /* the chat goes on behind its answer, more often than not */
        if (test_random() % 4 && t[i]->n == (int)got[i].n_prompt && t[i]->n + (int)got[i].n_tokens < LONGEST) {
            if (got[i].n_tokens) memcpy(t[i]->id + t[i]->n, got[i].tokens, got[i].n_tokens * sizeof *t[i]->id);
            t[i]->n += (int)got[i].n_tokens;
        }
        luce_result_drop(&got[i]);
    }
}

/* A session takes part in it: its text is a tree of its own. */
static void ask_session(luce_session *s, luce_model *m, luce_model *cold, const struct text *like)
{
    luce_result got, want;
    luce_error err = { 0 };
    size_t n;
    luce_session_tokens(s, &n);
    if (test_random() % 3 == 0 || n > 200) luce_session_rewind(s, n = test_random() % (n / 2 + 1));
    luce_request q = { .tokens = like->id, .n_tokens = (size_t)(like->n < 60 ? like->n : 60), .max_tokens = 8,
                       .ignore_end = true };
    CHECK_OK(luce_session_generate(s, &q, &got, &err), err);
    const int32_t *ids = luce_session_tokens(s, &n);
    luce_request again = { .tokens = ids, .n_tokens = n - got.n_tokens, .max_tokens = 8, .ignore_end = true };
    CHECK_OK(luce_generate(cold, &again, &want, &err), err);
    CHECK(same(&got, &want), "the session's text");
    luce_result_drop(&got);
    luce_result_drop(&want);
    (void)m;
}

static void walk(const struct way *w, int steps)
{
    static struct text all[TREES];
    struct way plain = { .model = w->model, .context = w->context };
    luce_session *s = NULL;
    luce_error err = { 0 };
    /* Room for two texts and the session's, and no more. */
    luce_model *m = open_way(w, 3, 18 * PAGE, test_random() % 2 ? 64 : 128, LUCE_REUSE_EXACT);
    luce_model *cold = open_way(&plain, 1, 0, 0, LUCE_REUSE_OFF);
    if (!m || !cold) return;
    CHECK_OK(luce_session_open(&s, m, &err), err);
    memset(all, 0, sizeof all);
    found = 0;
    for (int i = 0; i < TREES; i++) add_random(&all[i], 1 + (int)(test_random() % 150), m);
    struct cache *c = runner_cache(m->runner);
    for (int i = 0; i < steps || (i < 20 * steps && (!found || !cache_count(c).evicted)); i++) {
        change(all, m);
        if (i % 8 == 7) ask_session(s, m, cold, &all[i % TREES]);
        else ask_some(all, m, cold, w);
    }
    luce_session_close(s);
    CHECK(cache_count(c).evicted > 0 && found > 0, "%llu evicted, %zu found",
          (unsigned long long)cache_count(c).evicted, found);
    CHECK_EQ(cache_free_pages(c, 0), cache_pages(c, 0));
    luce_model_close(m);
    luce_model_close(cold);
}

TEST(prefix_K04_a_walk_with_a_tiny_cache_gives_the_texts_of_cold_runs)
{
    static const struct way ways[] = {
        { "oracle/llama.gguf", .context = 400 }, { "oracle/gemma3.gguf", .context = 400 },
        { "oracle/qwen35.gguf", .context = 400 }, { "oracle/qwen3next.gguf", .context = 400 },
        { "oracle/qwen3moe.gguf", .context = 400 },
    };
    for (size_t i = 0; i < COUNT(ways); i++) walk(&ways[i], WALK / 8);
}

TEST(prefix_K04_a_walk_with_drafters_gives_the_texts_of_cold_runs)
{
    static const struct way ways[] = {
        { NULL, "ngram", NULL, TINY_CONTEXT }, { NULL, "draft-model", "", TINY_CONTEXT },
        { "oracle/qwen35.gguf", "ngram", NULL, 400 }, { "oracle/gemma3.gguf", "draft-model", "oracle/gemma3.gguf", 400 },
        { "dflash/target.gguf", NULL, "dflash/v1_llama.gguf", 400 },
    };
    for (size_t i = 0; i < COUNT(ways); i++) walk(&ways[i], WALK / 16);
}

/* A chat of which each turn holds the one before. Returns what is reused of the last turn's prompt. */
static void chat(luce_model *m, int turns, int first, int each, size_t *reused, size_t *prompts)
{
    static int32_t ids[4096];
    luce_error err = { 0 };
    int n = 0;
    for (int turn = 0; turn < turns; turn++) {
        luce_result r;
        for (int i = 0; i < (turn ? each : first); i++) ids[n++] = any_id(m);
        luce_request q = { .tokens = ids, .n_tokens = (size_t)n, .max_tokens = 10, .ignore_end = true };
        CHECK_OK(luce_generate(m, &q, &r, &err), err);
        reused[turn] = r.n_reused;
        prompts[turn] = r.n_prompt;
        if (r.n_tokens) memcpy(ids + n, r.tokens, r.n_tokens * sizeof *ids);
        n += (int)r.n_tokens;
        luce_result_drop(&r);
    }
}

/* Nothing that stands in the cache is read again, but for the last page: of its pages, of states, behind windows. */
TEST(prefix_K01_a_turn_reads_its_own_tokens_and_less_than_a_page_more)
{
    static const char *const models[] = { "llama", "gemma3", "qwen35", "qwen35moe", "qwen3next" };
    for (size_t i = 0; i < COUNT(models); i++) {
        char path[64];
        size_t reused[8], prompts[8];
        snprintf(path, sizeof path, "oracle/%s.gguf", models[i]);
        luce_model *m = open_way(&(struct way){ path, .context = 512 }, 1, 0, 64, LUCE_REUSE_EXACT);
        if (!m) return;
        chat(m, 8, 200, 30, reused, prompts);
        for (int t = 1; t < 8; t++)
            CHECK(reused[t] + PAGE > prompts[t] - 31, "%s: turn %d reads %zu of %zu again", models[i], t,
                  prompts[t] - reused[t], prompts[t]);
        luce_model_close(m);
    }
}

/* A template may write the end of a prompt, where an answer begins, otherwise in the next turn's history. */
TEST(prefix_K01_a_prompt_whose_last_tokens_change_is_found_up_to_the_page_before)
{
    static const char *const models[] = { "llama", "gemma3", "qwen35" };
    for (size_t i = 0; i < COUNT(models); i++) {
        char path[64];
        snprintf(path, sizeof path, "oracle/%s.gguf", models[i]);
        luce_model *m = open_way(&(struct way){ path, .context = 512 }, 1, 0, 512, LUCE_REUSE_EXACT);
        if (!m) return;
        for (int n = 256; n < 256 + 12; n++) {
            struct text t = { .n = 0 };
            luce_result r;
            luce_error err = { 0 };
            add_random(&t, 290, m);
            for (int turn = 0; turn < 2; turn++) {
                luce_request q = { .tokens = t.id, .n_tokens = (size_t)(turn ? 290 : n), .max_tokens = 90 };
                if (turn) q.max_tokens = 1;
                CHECK_OK(luce_generate(m, &q, &r, &err), err);
                if (turn) CHECK((int)r.n_reused >= (n - 8) / PAGE * PAGE, "%s: %zu of %d", models[i], r.n_reused, n);
                luce_result_drop(&r);
                t.id[n - 4]++;
                t.id[n - 4] %= 90;
            }
        }
        luce_model_close(m);
    }
}

/* 16 turns in a cache that is no larger than the text, with the states of one sequence. */
TEST(prefix_K05_a_chat_that_grows_finds_more_each_turn)
{
    static const char *const models[] = { "llama", "gemma3", "qwen35" };
    for (size_t i = 0; i < COUNT(models); i++) {
        char path[64];
        size_t reused[16], prompts[16];
        snprintf(path, sizeof path, "oracle/%s.gguf", models[i]);
        luce_model *m = open_way(&(struct way){ path, .context = 512 }, 1, 0, 64, LUCE_REUSE_EXACT);
        if (!m) return;
        for (int other = 0; other < 2; other++) {
            chat(m, 6, 70, 60, reused, prompts);        /* other chats fill it first */
            chat(m, 16, 70, 16, reused, prompts);
        }
        for (int t = 1; t < 16; t++) {
            CHECK(reused[t] >= reused[t - 1], "%s: turn %d finds %zu, the one before %zu", models[i], t, reused[t],
                  reused[t - 1]);
            CHECK(reused[t] + PAGE + 17 > prompts[t]);
        }
        luce_model_close(m);
    }
}

TEST(prefix_P12_a_drafter_does_not_change_what_is_found)
{
    static const struct way ways[] = {
        { NULL, "ngram", NULL, TINY_CONTEXT }, { NULL, "draft-model", "", TINY_CONTEXT },
        { "oracle/qwen35.gguf", "ngram", NULL, 400 }, { "dflash/target.gguf", NULL, "dflash/v1_llama.gguf", 400 },
    };
    for (size_t i = 0; i < COUNT(ways); i++) {
        static int32_t ids[400];
        struct way plain = { .model = ways[i].model, .context = ways[i].context };
        luce_model *m[2] = { open_way(&plain, 2, 0, 0, LUCE_REUSE_EXACT), open_way(&ways[i], 2, 0, 0, LUCE_REUSE_EXACT) };
        if (!m[0] || !m[1]) return;
        int n = 0;
        for (int turn = 0; turn < 6; turn++) {
            luce_result r[2];
            luce_error err = { 0 };
            for (int k = 0; k < 25; k++) ids[n++] = k % 5 ? any_id(m[0]) : 7;
            luce_request q = { .tokens = ids, .n_tokens = (size_t)n, .max_tokens = 30, .ignore_end = true };
            for (int k = 0; k < 2; k++) CHECK_OK(luce_generate(m[k], &q, &r[k], &err), err);
            CHECK(same(&r[0], &r[1]));
            CHECK_EQ(r[0].n_reused, r[1].n_reused);
            memcpy(ids + n, r[0].tokens, r[0].n_tokens * sizeof *ids);
            n += (int)r[0].n_tokens;
            for (int k = 0; k < 2; k++) luce_result_drop(&r[k]);
        }
        for (int k = 0; k < 2; k++) luce_model_close(m[k]);
    }
}

/* Texts that leave a common beginning at the same place: the second leaves a checkpoint there for the third. */
TEST(prefix_a_common_beginning_is_found_from_the_third_text_on)
{
    static const char *const models[] = { "llama", "gemma3", "qwen35" };
    for (size_t i = 0; i < COUNT(models); i++) {
        char path[64];
        struct text t = { .n = 0 };
        snprintf(path, sizeof path, "oracle/%s.gguf", models[i]);
        luce_model *m = open_way(&(struct way){ path, .context = 512 }, 2, 0, 512, LUCE_REUSE_EXACT);
        if (!m) return;
        add_random(&t, 260, m);
        for (int k = 0; k < 4; k++) {
            luce_result r;
            luce_error err = { 0 };
            t.id[150] = k;
            luce_request q = { .tokens = t.id, .n_tokens = (size_t)t.n, .max_tokens = 4, .ignore_end = true };
            CHECK_OK(luce_generate(m, &q, &r, &err), err);
            if (k > 1 || (k == 1 && i == 0)) CHECK(r.n_reused == 128, "%s: text %d finds %zu", models[i], k, r.n_reused);
            luce_result_drop(&r);
        }
        luce_model_close(m);
    }
}

TEST(prefix_what_is_to_be_forgotten_is)
{
    static const luce_prefix_reuse reuse[] = { LUCE_REUSE_EXACT, LUCE_REUSE_FAST, LUCE_REUSE_OFF };
    for (size_t i = 0; i < COUNT(reuse); i++) {
        struct text t = { .n = 0 };
        luce_model *m = open_way(&(struct way){ .context = TINY_CONTEXT }, 2, 0, 0, reuse[i]);
        if (!m) return;
        add_random(&t, 200, m);
        struct cache *c = runner_cache(m->runner);
        static const struct { bool fresh; size_t found; int kept; } asks[] = {
            { true, 0, 0 }, { false, 0, 3 }, { true, 0, 3 }, { false, 192, 3 } };
        for (size_t k = 0; k < COUNT(asks); k++) {
            luce_result r;
            luce_error err = { 0 };
            luce_request q = { .tokens = t.id, .n_tokens = (size_t)t.n, .max_tokens = 4, .fresh = asks[k].fresh };
            CHECK_OK(luce_generate(m, &q, &r, &err), err);
            bool off = reuse[i] == LUCE_REUSE_OFF;
            CHECK_EQ(r.n_reused, off ? 0 : asks[k].found);
            CHECK_EQ(cache_count(c).pages, off ? 0 : asks[k].kept);
            luce_result_drop(&r);
        }
        luce_model_close(m);
    }
}

TEST(prefix_ended_texts_hold_no_more_than_they_may)
{
    luce_model *m = NULL;
    luce_error err = { 0 };
    CHECK_OK(luce_model_open(&m, &(luce_model_params){ .path = fixture("oracle/qwen35.gguf"), .device = "cpu",
                                                        .context = 512, .threads = 1, .sequences = 2, .prefix_cache_bytes = 200000 },
                             &err), err);
    if (!m) return;
    const struct kv_layout *l = &runner_model(m->runner)->kv;
    for (int k = 0; k < 6; k++) {
        struct text t = { .n = 0 };
        luce_result r;
        add_random(&t, 240, m);
        luce_request q = { .tokens = t.id, .n_tokens = (size_t)t.n, .max_tokens = 4 };
        CHECK_OK(luce_generate(m, &q, &r, &err), err);
        luce_result_drop(&r);
        struct cache_counts n = cache_count(runner_cache(m->runner));
        CHECK((uint64_t)n.pages * l->kind[0].page_bytes + (uint64_t)n.states * l->kind[KV_STATE].page_bytes <= 200000);
        CHECK(n.pages > 0);
    }
    CHECK(cache_count(runner_cache(m->runner)).evicted > 0);
    luce_model_close(m);
}
