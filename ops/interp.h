/* ops/interp.h - the reference interpreter: runs a tape by the float64 definitions of its ops.
 * Slow by intent: the oracle of devices, families and kernels. Keys and values are kept in float64,
 * or rounded through the cache format when `round_cache` is set, so that a quantised cache can be
 * compared closely. */
#ifndef LUCE_OPS_INTERP_H
#define LUCE_OPS_INTERP_H

#include "ops/ops.h"

struct interp;
/* The tape and layout must outlive it, and the weights' host bytes. n_slots sequences of at most
 * max_positions each. LUCE_E_ARG: a weight has none and is not synthetic. */
luce_status interp_open(struct interp **out, const struct tape *t, const struct kv_layout *kv, int n_slots,
                        int max_positions, bool round_cache, luce_error *err);
void interp_close(struct interp *p);
/* One step; values of inputs (tape_input) are set before by interp_write. LUCE_E_ARG: a sequence does
 * not fit. Edits are not looked at: positions are found by slot. */
luce_status interp_run(struct interp *p, const struct step *s, luce_error *err);
luce_status interp_write(struct interp *p, struct val v, const double *rows, int n_rows, luce_error *err);
/* A value of the last step, rows x cols; borrowed until the next run. All values stay readable. */
const double *interp_read(const struct interp *p, struct val v);
/* Keys or values of one position of one head as the reference holds them: get and set.
 * pos < 0: row -1 - pos of the slot's staging bank. */
double *interp_k(struct interp *p, int layer, int slot, int pos, int head);
double *interp_v(struct interp *p, int layer, int slot, int pos, int head);
/* State and journal of a recurrent layer, all parts, as tape/kv.h lays them out: get and set. */
double *interp_state(struct interp *p, int layer, int slot);
double *interp_journal(struct interp *p, int layer, int slot);

#endif
