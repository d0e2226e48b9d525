/* engine/api.c - opening models; see luce.h. */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/inside.h"
#include "model/vocab_gguf.h"

struct watch {                      /* the caller's progress function, as the loader asks for it */
    const luce_model_params *p;
    bool cancelled;
};

static void on_progress(void *context, double share)
{
    struct watch *w = context;
    if (w->p->progress && !w->p->progress(w->p->user, share)) w->cancelled = true;
}

static bool is_cancelled(void *context)
{
    return ((struct watch *)context)->cancelled;
}

static luce_status open_description(luce_model *m, const luce_model_params *p, struct model **model,
                                    luce_error *err)
{
    if (!p->path == !p->synthetic)
        return fail(err, LUCE_E_ARG, "no model: give either a GGUF file or PRESET:FORMAT");
    if (p->synthetic) return model_open_synthetic(model, p->synthetic, err);
    luce_status st = gguf_open(&m->file, p->path, err);
    bool has_text = !st && gguf_key(m->file, "tokenizer.ggml.model");
    if (has_text) st = vocab_from_gguf(&m->vocab, m->file, err);
    if (!st) st = gguf_text(m->file, "tokenizer.chat_template", (struct str){ 0 }, &m->chat_template, err);
    if (!st) st = model_open(model, m->file, err);      /* says first what is no model at all */
    if (!st && p->text && !has_text) st = fail(err, LUCE_E_UNSUPPORTED, NO_VOCABULARY, p->path);
    return st;
}

/* A bit for every id that may be generated; none when all may. */
static luce_status find_allowed(luce_model *m, int vocab, luce_error *err)
{
    int n_banned = 0, known = m->vocab ? vocab_size(m->vocab) : vocab;
    for (int i = 0; i < vocab; i++) n_banned += i >= known || (m->vocab && vocab_is_banned(m->vocab, i));
    if (n_banned == 0) return LUCE_OK;
    m->allowed = mem_array((size_t)vocab / 32 + 1, sizeof *m->allowed);
    if (!m->allowed) return fail(err, LUCE_E_NOMEM, "out of memory for the mask of %d tokens", vocab);
    for (int i = 0; i < known && i < vocab; i++)
        if (!vocab_is_banned(m->vocab, i)) m->allowed[i / 32] |= 1u << i % 32;
    return LUCE_OK;
}

static luce_status open_all(luce_model *m, const luce_model_params *p, luce_error *err)
{
    struct watch watch = { .p = p };
    struct load_params load = { .context = p->context, .n_slots = p->sequences,
                                .total_positions = p->cache_positions, .chunk = p->chunk,
                                .reuse = p->prefix_reuse, .kept_bytes = p->prefix_cache_bytes,
                                .progress = on_progress, .cancelled = is_cancelled,
                                .progress_context = &watch };
    struct device_params device = { .n_threads = p->threads };
    struct model *model = NULL;
    luce_status st = cache_format(p->cache_type_k ? p->cache_type_k : "f16", &load.k_format, err);
    if (!st) st = cache_format(p->cache_type_v ? p->cache_type_v : "f16", &load.v_format, err);
    if (!st) st = open_description(m, p, &model, err);
    if (!st) st = device_open(&m->device, p->device ? p->device : "auto", &device, err);
    if (!st) st = m->device->fns->info(m->device, &m->device_info, err);
    load.device = m->device;
    if (st || p->check_only) {
        struct load_plan plan;
        if (!st) st = runner_plan(model, &load, &plan, err);
        if (!st && !model->synthetic) st = model_check_weights(model, err);
        model_close(model);
        return st;
    }
    struct speculate_params spec = { .name = p->drafter, .path = p->draft_path, .most = p->draft_max,
                                     .block = p->draft_block_size, .chain = p->draft_chain,
                                     .margin = p->draft_margin };
    m->trained_context = model->c.context;
    st = speculator_prepare(&spec, model, m->vocab, &load.record, err);
    if (!st) st = find_allowed(m, model->c.vocab, err);
    if (!st && m->allowed) st = model_allow(model, m->allowed, err);
    if (st) {
        model_close(model);
        return st;
    }
    if ((st = runner_open(&m->runner, model, &load, err))) return st;
    if ((st = scheduler_init(&m->scheduler, m->runner, err))) return st;
    if ((st = speculator_open(&m->speculator, &spec, m->runner, m->vocab, err))) return st;
    return scheduler_speculate(&m->scheduler, m->speculator, err);
}

luce_status luce_model_open(luce_model **out, const luce_model_params *params, luce_error *err)
{
    *out = NULL;
    double start = clock_seconds();
    luce_model *m = mem_zero(sizeof *m);
    if (!m) return fail(err, LUCE_E_NOMEM, "out of memory for the model");
    luce_status st = open_all(m, params, err);
    m->load_seconds = clock_seconds() - start;
    if (st || params->check_only) luce_model_close(m);
    else *out = m;
    return st;
}

void luce_model_close(luce_model *m)
{
    if (!m) return;
    scheduler_drop(&m->scheduler);
    speculator_close(m->speculator);
    runner_close(m->runner);
    device_close(m->device);
    vocab_close(m->vocab);
    gguf_close(m->file);
    mem_free(m->allowed);
    mem_free(m);
}

luce_model_info luce_model_describe(const luce_model *m)
{
    const struct model *model = runner_model(m->runner);
    struct load_plan plan = runner_load_plan(m->runner);
    return (luce_model_info){
        .architecture = model->family->arch, .device = m->device_info.id,
        .device_name = m->device_info.name, .drafter = speculator_name(m->speculator),
        .speculates = m->speculator != NULL, .vocabulary = model->c.vocab, .embedding = model->c.embd,
            .context = plan.context,
        .sequences = cache_slots(runner_cache(m->runner)), .trained_context = m->trained_context,
        .has_text = m->vocab != NULL, .chat_template = m->chat_template.at,
        .chat_template_bytes = m->chat_template.len, .weight_bytes = plan.weights,
        .cache_bytes = plan.cache, .scratch_bytes = plan.scratch, .load_seconds = m->load_seconds };
}
