/* server/store.c - see store.h. Entries are kept as text, so that no tree is shared between threads. */
#include "server/store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "chat/tree.h"

enum { ENTRIES = 256, ENTRY_BYTES = 4 << 20, ALL_BYTES = 64 << 20 };

struct entry {
    char id[48];
    char *messages, *reply;
    size_t bytes;
};

struct store {
    pthread_mutex_t lock;
    struct entry entry[ENTRIES];    /* a ring: next is the oldest */
    int next;
    size_t bytes;
};

luce_status store_new(struct store **out, luce_error *err)
{
    struct store *s = *out = mem_zero(sizeof *s);
    if (!s) return fail(err, LUCE_E_NOMEM, "out of memory for the store of responses");
    pthread_mutex_init(&s->lock, NULL);
    return LUCE_OK;
}

static void drop(struct store *s, struct entry *e)
{
    s->bytes -= e->bytes;
    mem_free(e->messages);
    mem_free(e->reply);
    *e = (struct entry){ 0 };
}

void store_free(struct store *s)
{
    if (!s) return;
    for (int i = 0; i < ENTRIES; i++) drop(s, &s->entry[i]);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

void store_put(struct store *s, const char *id, const json_t *messages, const char *reply)
{
    struct buf text = { 0 };
    tree_print(&text, messages, TREE_COMPACT);
    struct entry e = { .messages = text.failed ? NULL : mem_text(buf_text(&text), text.len),
                       .reply = mem_text(reply, strlen(reply)) };
    buf_drop(&text);
    snprintf(e.id, sizeof e.id, "%s", id);
    if (e.messages) e.bytes = strlen(e.messages) + strlen(reply);
    if (!e.messages || !e.reply || e.bytes > ENTRY_BYTES) {
        mem_free(e.messages);
        mem_free(e.reply);
        return;
    }
    pthread_mutex_lock(&s->lock);
    drop(s, &s->entry[s->next]);
    s->entry[s->next] = e;
    s->bytes += e.bytes;
    s->next = (s->next + 1) % ENTRIES;
    for (int i = s->next; s->bytes > ALL_BYTES; i = (i + 1) % ENTRIES) drop(s, &s->entry[i]);
    pthread_mutex_unlock(&s->lock);
}

bool store_get(struct store *s, const char *id, json_t **messages, char **reply)
{
    bool found = false;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < ENTRIES && !found; i++) {
        const struct entry *e = &s->entry[i];
        if (!e->messages || strcmp(e->id, id)) continue;
        found = true;
        if (messages) found = (*messages = tree_read(str_of(e->messages), JSON_IN_DEPTH, NULL)) != NULL;
        if (reply) found = (*reply = mem_text(e->reply, strlen(e->reply))) != NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}
