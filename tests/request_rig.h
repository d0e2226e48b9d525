/* tests/request_rig.h - a request of its own sequence in a scheduler, for tests. */
#ifndef LUCE_TESTS_REQUEST_RIG_H
#define LUCE_TESTS_REQUEST_RIG_H

#include "engine/scheduler.h"
#include "test.h"

/* Adds r, which `end_request` ends, to the scheduler. */
static inline void begin_request(struct scheduler *s, const struct request_env *env, struct request *r, const luce_request *q)
{
    struct seq *seq;
    luce_error err = { 0 };
    CHECK_OK(request_init(r, q, env, &err), err);
    CHECK_OK(seq_open(&seq, runner_cache(s->runner), &err), err);
    scheduler_add(s, r, seq);
}

static inline void end_request(struct request *r)
{
    seq_close(r->seq);
    request_drop(r);
}

#endif
