/* tape/step.h - the step: one forward pass over rows of several sequences, as flat data.
 *
 * Prefill chunks, plain decode, draft verification (chain or tree) and batches are all steps with
 * other rows. The layout is an ABI shared with kernels: fixed offsets, no pointers, little-endian.
 * What a step uses is a prefix of the block (rows come last), so one copy takes it to a device.
 *
 * Narrow steps (1 to 64 rows) put new K and V into the staging bank of each sequence's slot and
 * commit nothing: the next step of the sequence carries in `commit` which bank rows were accepted,
 * and its kernels move those rows into pages before they write new ones. Wide steps (prefill) write
 * into pages at once. */
#ifndef LUCE_TAPE_STEP_H
#define LUCE_TAPE_STEP_H

#include <stddef.h>
#include <stdint.h>

enum {
    PAGE = 64,                  /* positions of a page */
    NARROW_ROWS = 64,           /* most rows of a narrow step, and rows of a staging bank */
    STEP_ROWS = 4096,           /* most rows of a wide step */
    STEP_OUTS = 64,             /* most rows whose logits one step gives */
    STEP_SEQS = 64,
    STEP_CTX = STEP_ROWS,
    STEP_EDITS = 4096,
};

enum step_class { STEP_NARROW, STEP_WIDE };

struct step_head {
    int32_t n_rows, n_out, n_ctx, n_seqs, n_edits;
    int32_t wide;               /* enum step_class */
    int32_t after;              /* some step_seq.after or step_seq.follows is set */
    int32_t pad;
};

/* One sequence of the step. Its rows are contiguous; n_rows 0 only commits. */
struct step_seq {
    int32_t slot;               /* where its tables, bank and state live */
    int32_t first_row, n_rows;
    int32_t past;               /* committed positions once `commit` is carried out; narrow rows of
                                   this step continue there, wide rows start there */
    int32_t n_commit;           /* bank rows of its step before that were accepted ... */
    int32_t after;              /* 1 + a sequence of the last step that had an ACCEPT: `past` and the places of all
                                   rows move on by as many rows as that kept of it, and the token of the first row is
                                   what was chosen after them; 0: as it is said here (device.ahead) */
    int32_t follows;            /* the same, but of the token alone: what was kept is known, only not what was chosen */
    int32_t pad;
    uint8_t commit[NARROW_ROWS]; /* ... in order; row commit[i] goes to position past - n_commit + i */
};

struct step_row {
    int32_t token;              /* id, or -1 - i: row i of the buffer of given embeddings */
    int32_t index;              /* position in its sequence: past .. past + n_rows - 1 */
    int32_t rope[3];            /* rotary positions (all equal for one-axis models) */
    int32_t see;                /* last index it may see among committed and wide rows */
    int32_t seq;                /* into seq[] */
    int32_t pad;
    uint64_t path;              /* narrow: bit j set when row first_row + j of this sequence is an
                                   ancestor or the row itself; ancestors have lower numbers */
};

/* How the token after a row is drawn (SAMPLE). All zero: the largest logit. */
struct step_draw {
    float   scale;              /* log2(e) / temperature; 0: greedy */
    int32_t top_k;              /* 0: off */
    float   top_p, min_p;       /* 0: off */
    double  u;                  /* the random number, in [0, 1) */
};

struct step_out {
    int32_t row;                /* whose logits are wanted */
    int32_t pad;
    struct step_draw draw;
};

/* Context row of a drafter: row `from` of the features captured by the step before. */
struct step_ctx {
    int32_t from, index, seq, pad;
};

/* Page table change: entry `at` of `slot` in layer kind `kind` becomes `page` (-1: none). */
struct step_edit {
    int32_t kind, slot, at, page;
};

struct step {
    struct step_head head;
    struct step_seq  seq[STEP_SEQS];
    struct step_out  out[STEP_OUTS];
    struct step_edit edit[STEP_EDITS];
    struct step_ctx  ctx[STEP_CTX];
    struct step_row  row[STEP_ROWS];
};

_Static_assert(sizeof(struct step_head) == 32, "step ABI");
_Static_assert(sizeof(struct step_seq) == 96, "step ABI");
_Static_assert(sizeof(struct step_row) == 40, "step ABI");
_Static_assert(sizeof(struct step_out) == 32, "step ABI");
_Static_assert(sizeof(struct step_ctx) == 16, "step ABI");
_Static_assert(sizeof(struct step_edit) == 16, "step ABI");
_Static_assert(offsetof(struct step, row) % 8 == 0, "rows hold 64-bit masks");

/* The rows or the sequences of a step, whichever are more: some sequences only commit. */
static inline int step_room(const struct step *s)
{
    return s->head.n_rows > s->head.n_seqs ? s->head.n_rows : s->head.n_seqs;
}

/* Bytes from the start that a step with n_rows rows uses. */
static inline size_t step_bytes(int n_rows)
{
    return offsetof(struct step, row) + (size_t)n_rows * sizeof(struct step_row);
}

#endif
