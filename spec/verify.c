/* spec/verify.c - see verify.h. */
#include "spec/verify.h"

luce_status verify(const struct tree *t, const struct chooser *c, struct accepted *a, luce_error *err)
{
    a->n = 0;
    for (int node = 0; node >= 0;) {
        int32_t token;
        bool more;
        a->path[a->n++] = (uint8_t)node;
        luce_status st = c->choose(c->context, node, &token, &more, err);
        if (st || !more) return st;
        node = tree_child(t, node, token);
    }
    return LUCE_OK;
}
