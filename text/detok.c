/* text/detok.c - ids to bytes; see vocab.h. */
#include "text/unicode.h"
#include "text/vocab_private.h"

static struct str bytes_of(const struct vocab *v, int32_t id, unsigned flags)
{
    struct str none = { "", 0 };
    if (id < 0 || id >= v->n_tokens) return none;
    const struct token *t = &v->tokens[id];
    bool hidden = t->kind == TOKEN_CONTROL || t->kind == TOKEN_UNKNOWN || t->kind == TOKEN_UNUSED;
    if (hidden) return flags & DETOK_SPECIAL ? (struct str){ t->raw, t->raw_len } : none;
    return (struct str){ t->bytes, t->bytes_len };
}

void token_bytes(const struct vocab *v, int32_t id, unsigned flags, struct buf *out)
{
    struct str bytes = bytes_of(v, id, flags);
    buf_add(out, bytes.at, bytes.len);
}

static const char replacement[] = "\xef\xbf\xbd";

/* Appends all that is complete; the incomplete tail, at most 3 bytes, is left. */
static size_t add_complete(struct str text, struct buf *out)
{
    size_t done = 0;
    while (done < text.len) {
        int n = utf8_valid(text.at + done, text.len - done);
        if (n == 0) break;
        if (n > 0) buf_add(out, text.at + done, (size_t)n);
        else {
            buf_add(out, replacement, 3);
            n = -n;
        }
        done += (size_t)n;
    }
    return done;
}

void detok_add(struct detok *d, const struct vocab *v, int32_t id, unsigned flags, struct buf *out)
{
    struct str bytes = bytes_of(v, id, flags);
    if (!bytes.len) return;
    if (!d->started && v->add_space_prefix && bytes.at[0] == ' ') {
        bytes.at++;
        bytes.len--;
    }
    d->started = true;
    /* Held bytes are completed, or found wanting, by at most 3 more. */
    while (d->n_held && bytes.len) {
        d->held[d->n_held++] = *bytes.at++;
        bytes.len--;
        size_t done = add_complete((struct str){ d->held, (size_t)d->n_held }, out);
        d->n_held -= (int)done;
        memmove(d->held, d->held + done, (size_t)d->n_held);
    }
    size_t done = add_complete(bytes, out);
    if (done == bytes.len) return;
    d->n_held = (int)(bytes.len - done);
    memcpy(d->held, bytes.at + done, (size_t)d->n_held);
}

void detok_end(struct detok *d, struct buf *out)
{
    if (d->n_held) buf_add(out, replacement, 3);
    d->n_held = 0;
}
