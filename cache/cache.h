/* cache/cache.h - pages of keys and values on one device, and the sequences that hold them.
 *
 * Pages are counted: sequences share full pages by prefix, and a page goes back to the pool with its
 * last holder. A sequence owns a slot of the device (page tables, staging bank). Table changes are
 * queued as edits and travel with the next step; the accepted rows of a narrow step travel as that
 * step's commit list.
 * Threads: one owner, the one that owns the device. */
#ifndef LUCE_CACHE_CACHE_H
#define LUCE_CACHE_CACHE_H

#include "device/device.h"

struct cache;
struct seq;

struct cache_config {
    struct device *device;
    const struct kv_layout *layout;
    int n_slots;                /* sequences at once, 1 .. STEP_SEQS */
    int max_positions;          /* of one sequence */
    int64_t total_positions;    /* of all sequences together, in pages of kinds without a window */
};
/* Bytes that the pools will take, before anything is claimed. */
uint64_t cache_bytes(const struct cache_config *c);
/* LUCE_E_DEVMEM names the bytes wanted and free. */
luce_status cache_open(struct cache **out, const struct cache_config *config, luce_error *err);
void cache_close(struct cache *c);
struct device_cache *cache_on_device(const struct cache *c);
/* Pages of a kind that no sequence holds. */
int cache_free_pages(const struct cache *c, int kind);
int cache_free_slots(const struct cache *c);

/* A new empty sequence. LUCE_E_DEVMEM: all slots are taken. */
luce_status seq_open(struct seq **out, struct cache *c, luce_error *err);
void seq_close(struct seq *s);                  /* releases pages and slot; NULL is fine */
/* Shares the first n positions (whole pages, already committed) of `from`; `s` must be empty. */
luce_status seq_share(struct seq *s, const struct seq *from, int n, luce_error *err);
int seq_slot(const struct seq *s);
/* Positions in the sequence: committed pages plus rows accepted but not yet moved. */
int seq_length(const struct seq *s);
/* Makes sure that positions up to n exist in pages. LUCE_E_DEVMEM when the pool is exhausted (nothing
 * changes), LUCE_E_ARG beyond max_positions. Releases window pages that no later row can see. */
luce_status seq_reserve(struct seq *s, int n, luce_error *err);
/* After a narrow step in which the sequence had rows: the accepted path, as local row numbers in
 * order. It is carried out by the sequence's next step. */
void seq_accept(struct seq *s, const uint8_t *path, int n);
/* After a wide step of n rows: they are in pages already. */
void seq_advance(struct seq *s, int n);
/* Forgets positions from n on (n at or below the length). Rows that are only accepted are dropped or
 * shortened without touching pages. */
void seq_truncate(struct seq *s, int n);
/* Fills positions [from, to) with random keys and values (bench only): claims pages, writes them. */
luce_status seq_fill_random(struct seq *s, int to, uint64_t seed, luce_error *err);

/* Writes the sequence's entry and its pending commit into the step (run/steps.c calls it), and moves
 * queued edits of the cache into it. */
void seq_emit(struct seq *s, struct step *step, int index);
void cache_emit_edits(struct cache *c, struct step *step);
/* The step ran: commits that were emitted are done. */
void seq_emitted(struct seq *s);
/* Whole pages of a sequence to and from host bytes (save, restore). */
uint64_t seq_state_bytes(const struct seq *s);

#endif
