/* spec/drafters.c - the only place that knows all drafters. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "spec/drafter.h"

extern const struct drafter drafter_none, drafter_model, drafter_dflash, drafter_dflash2, drafter_mtp,
                            drafter_scripted;
static const struct drafter *const drafters[] = {
    &drafter_none, &drafter_ngram, &drafter_model, &drafter_dflash, &drafter_dflash2, &drafter_mtp,
    &drafter_scripted,
};

const struct drafter *drafter_row(int i)
{
    return i >= 0 && (size_t)i < COUNT(drafters) ? drafters[i] : NULL;
}

const struct drafter *drafter_find(const char *name)
{
    for (size_t i = 0; i < COUNT(drafters); i++)
        if (!strcmp(drafters[i]->name, name)) return drafters[i];
    return NULL;
}

const struct drafter *drafter_for(const char *path)
{
    for (size_t i = 0; i < COUNT(drafters); i++)
        if (drafters[i]->claims && drafters[i]->claims(path)) return drafters[i];
    return &drafter_model;
}

luce_status drafter_get(const struct drafter **out, const char *name, luce_error *err)
{
    *out = drafter_find(name);
    if (*out) return LUCE_OK;
    struct buf known = { 0 };
    for (size_t i = 0; i < COUNT(drafters); i++) buf_printf(&known, "%s%s", i ? ", " : "", drafters[i]->name);
    luce_status st = fail(err, LUCE_E_ARG, "no drafter '%s'; known: %s", name, buf_text(&known));
    buf_drop(&known);
    return st;
}
