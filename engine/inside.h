/* engine/inside.h - the structures behind the public handles. */
#ifndef LUCE_ENGINE_INSIDE_H
#define LUCE_ENGINE_INSIDE_H

#include "engine/scheduler.h"
#include "gguf/reader.h"

struct luce_model {
    struct gguf   *file;            /* NULL for a synthetic model */
    struct vocab  *vocab;           /* likewise */
    struct device *device;
    struct runner *runner;
    struct scheduler scheduler;
    struct speculator *speculator;  /* NULL: nothing is guessed */
    uint32_t      *allowed;         /* a bit per id; NULL when every id is */
    struct device_info device_info;
    struct str     chat_template;
    int            trained_context;
    double         load_seconds;
};

struct luce_session {
    struct luce_model *model;
    struct seq *seq;
    int32_t *ids;
    int n_ids, cap_ids;
};

/* What a request of this model is checked against. */
struct request_env request_env_of(const luce_model *m);

#endif
