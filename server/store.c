/* server/store.c - see store.h. Entries are kept as text, so that no tree is shared between threads. */
#include "server/store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/mem.h"
#include "chat/tree.h"

enum { ID_BYTES = 48, ENTRIES = 256, ENTRY_BYTES = 4 << 20, ALL_BYTES = 64 << 20 };

struct entry {
    char id[ID_BYTES];
    char *messages, *reply, *items;
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
    mem_free(e->items);
    *e = (struct entry){ 0 };
}

void store_free(struct store *s)
{
    if (!s) return;
    for (int i = 0; i < ENTRIES; i++) drop(s, &s->entry[i]);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

void store_put(struct store *s, const char *id, const struct kept *k)
{
    struct buf text = { 0 };
    tree_print(&text, k->messages, TREE_COMPACT);
    struct entry e = { .messages = text.failed ? NULL : mem_text(buf_text(&text), text.len),
                       .reply = mem_text(k->reply, strlen(k->reply)), .items = mem_text(k->items, strlen(k->items)),
                       .bytes = text.len + strlen(k->reply) + strlen(k->items) };
    buf_drop(&text);
    snprintf(e.id, sizeof e.id, "%s", id);
    bool good = e.messages && e.reply && e.items && e.bytes <= ENTRY_BYTES;
    pthread_mutex_lock(&s->lock);
    s->bytes += e.bytes;
    if (!good) drop(s, &e);
    if (good) {
        drop(s, &s->entry[s->next]);
        s->entry[s->next] = e;
        s->next = (s->next + 1) % ENTRIES;
    }
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

/* The item of a reply. */
static json_t *item_of(const char *reply, const char *id)
{
    json_t *tree = tree_read(str_of(reply), JSON_IN_DEPTH, NULL), *item, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(tree, "output"), i, item) {
        const char *own = json_string_value(json_object_get(item, "id"));
        if (own && !strcmp(own, id)) found = json_incref(item);
    }
    json_decref(tree);
    return found;
}

json_t *store_find_item(struct store *s, const char *id)
{
    char word[ID_BYTES + 2], *reply = NULL;
    if (strlen(id) >= ID_BYTES || strchr(id, ' ')) return NULL;
    snprintf(word, sizeof word, " %s ", id);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < ENTRIES && !reply; i++) {
        const struct entry *e = &s->entry[i];
        if (e->items && strstr(e->items, word)) reply = mem_text(e->reply, strlen(e->reply));
    }
    pthread_mutex_unlock(&s->lock);
    json_t *item = reply ? item_of(reply, id) : NULL;
    mem_free(reply);
    return item;
}
