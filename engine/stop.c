/* engine/stop.c - see stop.h. The string that is complete first, byte by byte, ends the text, so that
 * the result does not depend on how the text arrives in pieces. */
#include "engine/stop.h"

/* Length of the longest stop string that ends at held[end] (s->hit), 0 when none does. */
static size_t complete_at(struct stopper *s, size_t end)
{
    size_t longest = 0;
    for (int i = 0; i < s->n_stop; i++) {
        struct str stop = s->stop[i];
        if (stop.len > end || stop.len <= longest || memcmp(s->held.data + end - stop.len, stop.at, stop.len))
            continue;
        longest = stop.len;
        s->hit = i;
    }
    return longest;
}

/* How many bytes at the end of `held` are the begin of a stop string. */
static size_t waiting(const struct stopper *s)
{
    size_t most = 0;
    for (int i = 0; i < s->n_stop; i++) {
        size_t n = s->stop[i].len - 1;
        for (n = n < s->held.len ? n : s->held.len; n > most; n--)
            if (!memcmp(s->held.data + s->held.len - n, s->stop[i].at, n)) most = n;
    }
    return most;
}

bool stopper_add(struct stopper *s, struct str text, size_t *ready)
{
    size_t before = s->held.len;
    *ready = 0;
    buf_add(&s->held, text.at, text.len);
    for (size_t end = before + 1; end <= s->held.len; end++) {
        size_t n = complete_at(s, end);
        if (n == 0) continue;
        s->held.len = *ready = end - n;
        return true;
    }
    *ready = s->held.len - waiting(s);
    return false;
}

void stopper_take(struct stopper *s, size_t n)
{
    if (n == 0) return;
    memmove(s->held.data, s->held.data + n, s->held.len - n);
    s->held.len -= n;
}

void stopper_drop(struct stopper *s)
{
    buf_drop(&s->held);
}
