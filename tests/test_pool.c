/* tests/test_pool.c - the thread pool, its barrier, threads and queues. */
#include <pthread.h>

#include "base/pool.h"
#include "base/queue.h"
#include "base/thread.h"
#include "test.h"

/* Sizes around the barrier's groups of 8, and more threads than any test machine has cores. */
static const int sizes[] = { 1, 2, 3, 4, 8, 9, 17 };

static struct pool *make_pool(int n)
{
    struct pool *p = NULL;
    luce_error err = { 0 };
    CHECK_OK(pool_new(&p, n, &err), err);
    return p;
}

struct tally {
    struct pool *pool;
    int calls[32];              /* each thread writes its own; the caller reads after the round */
    int n_seen;
};

static void note_call(void *arg, int thread, int n_threads)
{
    struct tally *t = arg;
    t->calls[thread]++;
    if (thread == 0) t->n_seen = n_threads;
}

TEST(pool_runs_the_function_once_on_every_thread)
{
    for (size_t s = 0; s < COUNT(sizes); s++) {
        struct tally t = { .pool = make_pool(sizes[s]) };
        if (!t.pool) return;
        CHECK_EQ(pool_threads(t.pool), sizes[s]);
        for (int round = 1; round <= 300; round++) {
            pool_run(t.pool, note_call, &t);
            CHECK_EQ(t.n_seen, sizes[s]);
            for (int i = 0; i < 32; i++) CHECK_EQ(t.calls[i], i < sizes[s] ? round : 0);
        }
        pool_free(t.pool);
    }
}

enum { PHASES = 50 };
struct relay {
    struct pool *pool;
    int value[2][32];           /* written in one phase, read by all in the next */
    int wrong[32];
};

static void pass_on(void *arg, int thread, int n_threads)
{
    struct relay *r = arg;
    for (int phase = 0; phase < PHASES; phase++) {
        r->value[phase & 1][thread] = phase * 100 + thread;
        pool_barrier(r->pool, thread);
        for (int i = 0; i < n_threads; i++)
            if (r->value[phase & 1][i] != phase * 100 + i) r->wrong[thread]++;
    }
}

TEST(pool_barrier_shows_every_write_before_it_to_all)
{
    for (size_t s = 0; s < COUNT(sizes); s++) {
        struct relay r = { .pool = make_pool(sizes[s]) };
        if (!r.pool) return;
        for (int round = 0; round < 20; round++) pool_run(r.pool, pass_on, &r);
        for (int i = 0; i < 32; i++) CHECK_EQ(r.wrong[i], 0);
        pool_free(r.pool);
    }
}

TEST(pool_wakes_threads_that_went_to_sleep)
{
    struct tally t = { .pool = make_pool(4) };
    struct queue *q = NULL;
    luce_error err = { 0 };
    CHECK_OK(queue_new(&q, 1, &err), err);
    if (!t.pool || !q) return;
    for (int round = 1; round <= 5; round++) {
        CHECK(queue_pop_within(q, 0.002) == NULL);      /* longer than any spin */
        pool_run(t.pool, note_call, &t);
        for (int i = 0; i < 4; i++) CHECK_EQ(t.calls[i], round);
    }
    queue_free(q);
    pool_free(t.pool);
}

TEST(pool_refuses_sizes_it_cannot_have)
{
    static const int bad[] = { 0, -1, POOL_THREADS_MAX + 1, INT32_MAX };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct pool *p = NULL;
        luce_error err = { 0 };
        CHECK_EQ(pool_new(&p, bad[i], &err), LUCE_E_ARG);
        CHECK(p == NULL);
        CHECK(strstr(err.text, "expected 1 to") != NULL, "%s", err.text);
    }
    pool_free(NULL);
}

TEST(pool_new_survives_any_failed_allocation)
{
    size_t before = mem_live();
    for (int n = 0;; n++) {
        struct pool *p = NULL;
        luce_error err = { 0 };
        mem_fail_after(n);
        luce_status st = pool_new(&p, 3, &err);
        mem_fail_never();
        pool_free(p);
        CHECK_EQ(mem_live(), before);
        if (st == LUCE_OK) break;
        CHECK_EQ(st, LUCE_E_NOMEM);
        CHECK(p == NULL);
    }
}

static void *pin_and_run(void *arg)
{
    struct tally *t = arg;
    t->pool = make_pool(cores_count(false) < 32 ? cores_count(false) : 32);
    if (!t->pool) return NULL;
    CHECK(pool_pin(t->pool));
    pool_run(t->pool, note_call, t);
    pool_free(t->pool);
    struct cores left;
    cores_find(&left);                          /* thread 0 may use one core now */
    CHECK_EQ(left.n, 1);
    return NULL;
}

TEST(pool_pins_its_threads_where_cores_suffice)
{
    pthread_t t;                                /* so that the test's own thread stays free */
    struct tally tally = { 0 };
    CHECK_EQ(pthread_create(&t, NULL, pin_and_run, &tally), 0);
    pthread_join(t, NULL);
    CHECK_EQ(tally.calls[0], 1);
    struct pool *crowded = make_pool(cores_count(false) + 1);
    if (crowded) CHECK(!pool_pin(crowded));
    pool_free(crowded);
}

TEST(pool_shares_cover_all_items_once)
{
    for (int threads = 1; threads <= 9; threads++)
        for (int64_t n = 0; n < 40; n++) {
            int64_t at = 0, from, to;
            for (int t = 0; t < threads; t++) {
                pool_share(n, t, threads, &from, &to);
                CHECK_EQ(from, at);
                CHECK(to - from == n / threads || to - from == n / threads + 1);
                at = to;
            }
            CHECK_EQ(at, n);
        }
}

TEST(cores_are_counted_and_listed_once)
{
    struct cores c;
    cores_find(&c);
    CHECK(c.n >= 1 && c.n_physical >= 1 && c.n_physical <= c.n);
    for (int i = 0; i < c.n; i++)
        for (int k = 0; k < i; k++) CHECK(c.id[i] != c.id[k]);
    CHECK(cores_count(true) <= cores_count(false));
    CHECK(cores_count(false) <= c.n);
}

enum { ITEMS = 2000, SIDES = 3 };
struct traffic {
    struct queue *q;
    int numbers[SIDES][ITEMS];
    int64_t sum[SIDES];
};
static struct traffic traffic;

static void produce(void *arg)
{
    int *numbers = arg;
    for (int i = 0; i < ITEMS; i++) {
        numbers[i] = i;
        if (!queue_push(traffic.q, &numbers[i])) return;
    }
}

static void consume(void *arg)
{
    int64_t *sum = arg;
    for (int *item; (item = queue_pop(traffic.q));) *sum += *item + 1;
}

TEST(queue_loses_and_repeats_nothing_between_threads)
{
    luce_error err = { 0 };
    struct thread producer[SIDES] = { 0 }, consumer[SIDES] = { 0 };
    CHECK_OK(queue_new(&traffic.q, 5, &err), err);
    if (!traffic.q) return;
    for (int i = 0; i < SIDES; i++) {
        traffic.sum[i] = 0;
        CHECK_OK(thread_start(&producer[i], "producer", produce, traffic.numbers[i], &err), err);
        CHECK_OK(thread_start(&consumer[i], "consumer", consume, &traffic.sum[i], &err), err);
    }
    for (int i = 0; i < SIDES; i++) thread_join(&producer[i]);
    queue_close(traffic.q);
    int64_t all = 0;
    for (int i = 0; i < SIDES; i++) {
        thread_join(&consumer[i]);
        all += traffic.sum[i];
    }
    CHECK_EQ(all, (int64_t)SIDES * ITEMS * (ITEMS + 1) / 2);
    queue_free(traffic.q);
}

TEST(queue_keeps_order_bounds_and_what_was_inside_when_closed)
{
    luce_error err = { 0 };
    struct queue *q = NULL;
    int x[3];
    CHECK_EQ(queue_new(&q, 0, &err), LUCE_E_ARG);
    mem_fail_after(0);
    CHECK_EQ(queue_new(&q, 2, &err), LUCE_E_NOMEM);
    mem_fail_never();
    CHECK_OK(queue_new(&q, 2, &err), err);
    if (!q) return;
    CHECK(queue_pop_within(q, 0) == NULL);
    CHECK(queue_push(q, &x[0]));
    CHECK(queue_try_push(q, &x[1]));
    CHECK(!queue_try_push(q, &x[2]));
    CHECK_EQ(queue_length(q), 2);
    CHECK(queue_pop(q) == &x[0]);
    CHECK(queue_push(q, &x[2]));
    queue_close(q);
    CHECK(!queue_push(q, &x[0]));
    CHECK(queue_pop(q) == &x[1]);
    CHECK(queue_pop_within(q, 1) == &x[2]);
    CHECK(queue_pop(q) == NULL);
    queue_free(q);
}
