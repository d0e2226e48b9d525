/* tests/oracle.c - see oracle.h. */
#include "tests/oracle.h"

#include <math.h>

#include "base/log.h"

const char *const oracle_cases[] = {
    "llama", "llama3", "llama_linear", "llama_yarn", "qwen2", "qwen3", "qwen3moe", "qwen3moe_raw", "gemma3", "phi3", "phi3_long",
    "qwen35", "qwen35_equal", "qwen35moe", "qwen3next", "qwen35_mtp", NULL,
};

bool oracle_get(struct oracle *o, const struct gguf *g, int i)
{
    char name[32];
    luce_error err = { 0 };
    uint32_t context;
    const struct gguf_tensor *t[3];
    static const char *const parts[] = { "tokens", "logits", "hidden" };
    for (int p = 0; p < 3; p++) {
        snprintf(name, sizeof name, "oracle.%d.%s", i, parts[p]);
        t[p] = gguf_find(g, name);
    }
    if (!t[0] || !t[1]) return false;
    snprintf(name, sizeof name, "oracle.%d.context", i);
    CHECK_OK(gguf_u32(g, name, 0, &context, &err), err);
    *o = (struct oracle){ .n = (int)t[0]->dim[0], .vocab = (int)t[1]->dim[0], .context = (int)context,
                          .tokens = (const void *)t[0]->data, .logits = (const void *)t[1]->data };
    if (!t[2]) return true;
    o->embd = (int)t[2]->dim[0];
    o->layers = (int)t[2]->dim[2];
    o->hidden = (const void *)t[2]->data;
    return true;
}

double oracle_distance(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = d >= 0 ? d : INFINITY;
    }
    return most;
}

bool oracle_open(struct gguf **g, struct model **m, const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "oracle/%s.gguf", name);
    *g = NULL;
    *m = NULL;
    log_set_level(LOG_ERROR);
    bool ok = model_from_file(g, m, fixture(file));
    log_set_level(LOG_WARN);
    return ok;
}
