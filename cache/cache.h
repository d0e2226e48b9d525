/* cache/cache.h - pages of keys and values on one device, and the sequences that hold them.
 *
 * Pages are counted: sequences share full pages by prefix, and a page goes back to the pool with its
 * last holder. A sequence owns a slot of the device (page tables, staging bank). Table changes are
 * queued as edits and travel with the next step; the accepted rows of a narrow step travel as that
 * step's commit list.
 *
 * Full pages are kept when their sequence ends, in a tree that finds them by the tokens of the text up to them:
 * the prefix cache. A sequence that begins claims what it has of its text. Kept pages that no sequence holds
 * count as free: they are evicted as room is needed, leaves first and the least recently used of them.
 *
 * Recurrent layers keep a state per slot instead, after the committed positions. It cannot be taken back, so
 * copies of it are kept as checkpoints, at page boundaries, beside the page that ends there: the newest one, one
 * after the prompt, where a text ended or left one that was known, and one every CHECKPOINT_EVERY positions.
 * They are thinned out when there is no room.
 * Threads: one owner, the one that owns the device. */
#ifndef LUCE_CACHE_CACHE_H
#define LUCE_CACHE_CACHE_H

#include "device/device.h"

struct cache;
struct seq;

enum { CHECKPOINT_EVERY = 4096, CHECKPOINTS = 4 };     /* positions; how many there are for each slot */

struct cache_config {
    struct device *device;
    const struct kv_layout *layout;
    int n_slots;                /* sequences at once, 1 .. STEP_SEQS */
    int max_positions;          /* of one sequence */
    int64_t total_positions;    /* of all sequences together, in pages of kinds without a window */
    int step_rows;              /* most rows of a sequence in one step; sizes the pools of windows */
    luce_prefix_reuse reuse;
    int64_t kept_bytes;         /* most that texts which have ended hold; 0: as many as there are */
};
/* Bytes that the pools will take, before anything is claimed. */
uint64_t cache_bytes(const struct cache_config *c);
/* LUCE_E_DEVMEM names the bytes wanted and free. */
luce_status cache_open(struct cache **out, const struct cache_config *config, luce_error *err);
void cache_close(struct cache *c);
struct device_cache *cache_on_device(const struct cache *c);
/* Pages of a kind, and those of them that no sequence holds. */
int cache_pages(const struct cache *c, int kind);
int cache_free_pages(const struct cache *c, int kind);
struct cache_counts {
    int pages, states;          /* of texts that have ended: pages of all kinds together; checkpoints */
    uint64_t evicted;           /* of both, so far */
};
struct cache_counts cache_count(const struct cache *c);
/* Rows of narrow steps are as good as those of wide ones for texts to come. */
bool cache_takes_narrow(const struct cache *c);
luce_prefix_reuse cache_reuse(const struct cache *c);
int64_t cache_total_positions(const struct cache *c);
/* How many positions seq_claim would find. */
int cache_find(struct cache *c, const int32_t *ids, int n);
int cache_free_slots(const struct cache *c);
int cache_slots(const struct cache *c);
int cache_max_positions(const struct cache *c);

/* A new empty sequence. LUCE_E_DEVMEM: all slots are taken. */
luce_status seq_open(struct seq **out, struct cache *c, luce_error *err);
void seq_close(struct seq *s);                  /* releases pages and slot; NULL is fine */
/* The text is to begin with these n tokens, which s has a prefix of: claims what the cache has of them if that is
 * more. Whole pages are claimed, as far as windows hold what the next row sees, and to a checkpoint where layers
 * are recurrent. Returns the new length. */
int seq_claim(struct seq *s, const int32_t *ids, int n);
/* A turn ends here: it will be resumed, so what that needs is evicted last. */
void seq_turn(struct seq *s);
/* What this sequence computes from here on is for no other one, neither while it runs nor later (true), or is. */
void seq_forget(struct seq *s, bool forget);
/* Forgets the positions that no other sequence had, and does not keep their pages (a text that may be wrong). */
void seq_discard(struct seq *s);
int seq_slot(const struct seq *s);
/* Positions in the sequence: committed pages plus rows accepted but not yet moved. */
int seq_length(const struct seq *s);
/* Rows that are added from here on stand `origin` positions further in their text than in the sequence: their
 * rotary positions. 0 at first. */
void seq_set_origin(struct seq *s, int origin);
int seq_origin(const struct seq *s);
/* Positions from the start that were computed in wide steps. */
int seq_wide(const struct seq *s);
/* Makes sure that positions up to n exist in pages that nobody else holds where they will be written
 * (a shared page that the sequence continues after a truncation is copied). LUCE_E_DEVMEM when the
 * pool is exhausted (the sequence is unchanged), LUCE_E_ARG beyond max_positions. Releases window
 * pages that no later row can see. */
luce_status seq_reserve(struct seq *s, int n, luce_error *err);
/* The n rows of the sequence in a narrow step, whose tokens are wanted by seq_accept. */
void seq_note(struct seq *s, const struct step_row *rows, int n);
/* After such a step: the accepted path, as local row numbers in order; NULL is the chain 0 .. n-1. It is carried
 * out by the sequence's next step. */
void seq_accept(struct seq *s, const uint8_t *path, int n);
/* After a wide step with these n rows: they are in pages already. */
void seq_advance(struct seq *s, const struct step_row *rows, int n);
/* Forgets positions from n on (n at or below the length) and returns the new length: n, or 0 when a
 * window no longer holds what row n sees, so that the text must be fed again from its start; with recurrent
 * layers the last checkpoint at or before n, or 0. Rows that are only accepted are dropped or shortened
 * without touching pages. */
int seq_truncate(struct seq *s, int n);
/* Extends the sequence to position `to` with random keys and values (bench only); every page of a kind
 * gets the same ones. The sequence must not have rows that are only accepted. */
luce_status seq_fill_random(struct seq *s, int to, uint64_t seed, luce_error *err);

/* Writes the sequence's entry with its pending commit into step->seq[index]; rows are the caller's
 * business. */
void seq_emit(const struct seq *s, struct step *step, int index);
/* Moves page table changes into the step, as many as fit; true when some are left for another. */
bool cache_emit_edits(struct cache *c, struct step *step);
/* The step ran: the commit that was emitted is done. */
void seq_emitted(struct seq *s);

/* Accepted rows up to a page boundary that have to be committed on their own, by a step without rows
 * (seq_emit_part, seq_emitted_part): those that the next commit would pass over although a recurrent state has to
 * stand at the boundary; or `last`, as there will be no next commit, those that fill a page. 0: none. */
int seq_part(const struct seq *s, bool last);
void seq_emit_part(const struct seq *s, struct step *step, int index, int n);
void seq_emitted_part(struct seq *s, int n);
/* ---- recurrent layers; without them these do nothing --------------------------------------------- */
/* After a step: keeps a checkpoint if the state stands at a page boundary that has none. */
luce_status seq_checkpoint(struct seq *s, luce_error *err);
/* How many of the next n rows of a prompt, of which `left` are left, a step may take so that it ends where a
 * checkpoint is wanted. */
int seq_cut(struct seq *s, int n, int left);
/* Another text will be read from position `at` on. */
void seq_want_checkpoint(struct seq *s, int at);
/* Positions of the checkpoints, lowest first; returns how many (at most `most` are written). */
int seq_checkpoints(const struct seq *s, int *at, int most);

#endif
