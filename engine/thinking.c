/* engine/thinking.c - see thinking.h. */
#define _GNU_SOURCE             /* memmem */
#include "engine/thinking.h"

#include <string.h>

enum { SHORTEST_LOOP = 12, LONGEST_LOOP = 80 };

void thinking_begin(struct thinking *t, const luce_thinking *asked)
{
    *t = (struct thinking){ .asked = asked->n_end ? asked : NULL };
    t->state = asked->begun ? THINKING_INSIDE : THINKING_BEFORE;
}

void thinking_drop(struct thinking *t)
{
    buf_drop(&t->seen);
}

int32_t thinking_given(const struct thinking *t)
{
    if (!t->asked) return -1;
    bool now = t->given > 0 || (t->state == THINKING_INSIDE && t->n >= t->asked->budget);
    return now && t->given < t->asked->n_end ? t->asked->end[t->given] : -1;
}

bool thinking_was_cut(const struct thinking *t)
{
    return t->asked && t->given == t->asked->n_end;
}

/* White space, then the opening, begins it; anything else means that there is none. */
static void look_for_open(struct thinking *t)
{
    const char *open = t->asked->open;
    size_t at = 0, n = open ? strlen(open) : 0;
    while (at < t->seen.len && is_one_of(t->seen.data[at], " \t\r\n")) at++;
    size_t left = t->seen.len - at, same = left < n ? left : n;
    if (n == 0 || memcmp(buf_text(&t->seen) + at, open, same)) t->state = THINKING_OVER;
    else if (same == n) t->state = THINKING_INSIDE;
}

static void look_for_close(struct thinking *t)
{
    const char *close = t->asked->close;
    size_t n = strlen(close);
    if (t->seen.len >= n && memmem(t->seen.data, t->seen.len, close, n)) t->state = THINKING_OVER;
    else if (t->seen.len >= n) {                /* what may be the begin of one stays */
        size_t keep = n - 1;
        memmove(t->seen.data, t->seen.data + t->seen.len - keep, keep);
        t->seen.len = keep;
    }
}

void thinking_take(struct thinking *t, struct str text)
{
    if (!t->asked) return;
    if (thinking_given(t) >= 0) t->given++;
    if (t->state == THINKING_OVER) return;
    t->n++;
    buf_add(&t->seen, text.at, text.len);
    if (t->seen.failed) {
        t->state = THINKING_OVER;
        return;
    }
    if (t->state == THINKING_BEFORE) look_for_open(t);
    if (t->state == THINKING_INSIDE) look_for_close(t);
}

bool tokens_repeat(const int32_t *ids, int n)
{
    for (int p = SHORTEST_LOOP; p <= LONGEST_LOOP && 2 * p <= n; p++)
        if (!memcmp(ids + n - p, ids + n - 2 * p, (size_t)p * sizeof *ids)) return true;
    return false;
}
