/* model/table.c - the families; the only place that knows them all. */
#include "base/mem.h"
#include "model/family.h"

extern const struct family family_llama, family_qwen2, family_qwen3, family_qwen3moe, family_gemma3, family_phi3,
                           family_qwen35, family_qwen35moe, family_qwen3next;

static const struct family *const families[] = {
    &family_llama, &family_qwen2, &family_qwen3, &family_qwen3moe, &family_gemma3, &family_phi3,
    &family_qwen35, &family_qwen35moe, &family_qwen3next,
};

const struct family *family_at(size_t i)
{
    return i < COUNT(families) ? families[i] : NULL;
}

const struct family *family_named(struct str arch)
{
    for (size_t i = 0; i < COUNT(families); i++)
        if (str_is(arch, families[i]->arch)) return families[i];
    return NULL;
}
