/* tests/test_async.c - the engine that many threads submit to. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "luce.h"
#include "test.h"
#include "tiny_model.h"

enum { MANY = 8 };

/* One request's outcome, and a lock to wait by. */
struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool slow;                  /* a text takes long enough that others come before its end */
    int n_done, n_pieces;
    luce_finish finish[MANY];
    luce_status status[MANY];
    int32_t tokens[MANY][64];
    int n_tokens[MANY], n_told[MANY];
};
struct one {
    struct seen *seen;
    int index;
};

static bool on_text(void *user, const char *bytes, size_t n)
{
    struct one *o = user;
    (void)bytes, (void)n;
    pthread_mutex_lock(&o->seen->lock);
    o->seen->n_pieces++;
    pthread_cond_broadcast(&o->seen->changed);
    pthread_mutex_unlock(&o->seen->lock);
    return true;
}

static void on_token(void *user, const luce_token *t)
{
    struct one *o = user;
    CHECK(t->n_top == 2 && t->top_logprob[0] >= t->top_logprob[1] && t->logprob <= 0, "%d", t->n_top);
    o->seen->n_told[o->index]++;
    if (o->seen->slow) nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

static void on_done(void *user, luce_result *r)
{
    struct one *o = user;
    struct seen *s = o->seen;
    pthread_mutex_lock(&s->lock);
    s->n_done++;
    s->finish[o->index] = r->finish;
    s->status[o->index] = r->status;
    s->n_tokens[o->index] = (int)(r->n_tokens < 64 ? r->n_tokens : 64);
    if (r->n_tokens) memcpy(s->tokens[o->index], r->tokens, (size_t)s->n_tokens[o->index] * sizeof(int32_t));
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void wait_done(struct seen *s, int n)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_done < n) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void seen_init(struct seen *s)
{
    *s = (struct seen){ 0 };
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
}

static luce_engine *open_tiny(int sequences, int queue)
{
    luce_engine *e = NULL;
    luce_model *m = NULL;
    luce_error err = { 0 };
    luce_model_params p = { .path = tiny_model(), .device = "cpu", .threads = 1, .sequences = sequences };
    CHECK_OK(luce_model_open(&m, &p, &err), err);
    CHECK_OK(luce_engine_open(&e, m, &(luce_engine_params){ .queue = queue }, &err), err);
    return e;
}

static const int32_t prompts[MANY][4] = { { 10, 20, 30, 40 }, { 50, 60, 70, 80 }, { 9, 8, 7, 6 }, { 97, 98, 99, 100 },
                                          { 1, 2, 3, 4 },     { 44, 43, 42, 41 }, { 5, 5, 5, 5 }, { 120, 121, 122, 123 } };

static luce_request request_of(struct one *o, int i, int max_tokens)
{
    o->index = i;
    return (luce_request){ .tokens = prompts[i], .n_tokens = 4, .max_tokens = max_tokens, .ignore_end = true,
                           .on_text = on_text, .on_token = on_token, .logprobs = true, .top_logprobs = 2, .user = o };
}

TEST(async_requests_at_once_equal_each_alone)
{
    struct seen alone, together;
    struct one one[MANY];
    luce_request q[MANY];
    luce_ticket *tickets[MANY];
    luce_error err = { 0 };
    seen_init(&alone);
    seen_init(&together);
    luce_engine *e = open_tiny(4, MANY);
    for (int i = 0; i < MANY; i++) {
        one[i].seen = &alone;
        q[i] = request_of(&one[i], i, 24);
        CHECK_OK(luce_engine_submit(e, &q[i], 1, on_done, tickets, &err), err);
        luce_ticket_free(tickets[0]);
        wait_done(&alone, i + 1);
    }
    for (int i = 0; i < MANY; i++) one[i].seen = &together;
    CHECK_OK(luce_engine_submit(e, q, MANY, on_done, tickets, &err), err);
    for (int i = 0; i < MANY; i++) luce_ticket_free(tickets[i]);
    wait_done(&together, MANY);
    luce_engine_stats s = luce_engine_count(e);
    CHECK_EQ(s.finished, 2 * MANY);
    CHECK_EQ(s.generated_tokens, 2 * MANY * 24);
    luce_engine_close(e);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(together.finish[i], LUCE_FINISH_LENGTH);
        CHECK_EQ(together.n_told[i], 24);
        CHECK(!memcmp(alone.tokens[i], together.tokens[i], 24 * sizeof(int32_t)), "request %d", i);
    }
}

TEST(async_a_full_queue_refuses_and_cancelling_frees_it)
{
    struct seen seen;
    struct one one[4];
    luce_request q[4];
    luce_ticket *tickets[4];
    luce_error err = { 0 };
    seen_init(&seen);
    seen.slow = true;
    luce_engine *e = open_tiny(1, 1);
    for (int i = 0; i < 4; i++) {
        one[i].seen = &seen;
        q[i] = request_of(&one[i], i, 380);
    }
    CHECK_OK(luce_engine_submit(e, &q[0], 1, on_done, &tickets[0], &err), err);
    CHECK_OK(luce_engine_submit(e, &q[1], 1, on_done, &tickets[1], &err), err);
    CHECK_EQ(luce_engine_submit(e, &q[2], 1, on_done, &tickets[2], &err), LUCE_E_BUSY);
    CHECK(strstr(err.text, "which is the limit") && tickets[2] == NULL, "%s", err.text);
    luce_ticket_cancel(tickets[1]);
    luce_ticket_cancel(tickets[0]);
    wait_done(&seen, 2);
    CHECK_EQ(seen.finish[0], LUCE_FINISH_CANCELLED);
    CHECK_EQ(seen.finish[1], LUCE_FINISH_CANCELLED);
    q[3].max_tokens = 100000;
    CHECK_EQ(luce_engine_submit(e, &q[3], 1, on_done, &tickets[3], &err), LUCE_E_CONTEXT);
    CHECK_OK(luce_engine_submit(e, &q[2], 1, on_done, &tickets[2], &err), err);
    luce_engine_stop(e);                        /* ends what runs */
    CHECK_EQ(seen.finish[2], LUCE_FINISH_CANCELLED);
    q[3].max_tokens = 3;
    CHECK_EQ(luce_engine_submit(e, &q[3], 1, on_done, &tickets[3], &err), LUCE_E_CANCELLED);
    for (int i = 0; i < 3; i++) luce_ticket_free(tickets[i]);
    luce_engine_close(e);
}

TEST(async_submit_survives_any_failed_allocation)
{
    struct seen seen;
    struct one one = { .seen = &seen };
    luce_request q = request_of(&one, 0, 4);
    const char *stop[] = { "zzzz" };
    q.stop = stop;
    q.n_stop = 1;
    luce_engine *e = open_tiny(1, 4);
    luce_ticket *t;
    for (int n = 0;; n++) {
        luce_error err = { 0 };
        seen_init(&seen);
        mem_fail_after(n);
        luce_status st = luce_engine_submit(e, &q, 1, on_done, &t, &err);
        mem_fail_never();
        if (!st) {
            wait_done(&seen, 1);
            luce_ticket_free(t);
            break;
        }
        CHECK_EQ(st, LUCE_E_NOMEM);
    }
    luce_engine_close(e);
}
