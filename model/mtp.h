/* model/mtp.h - the block behind the layers of some models that predicts one token further (MTP, "next n"), as a
 * model of its own. It uses the target's embedding and head, on the target's device, where its file has none.
 * A row is a token and, as record.given, the hidden state of the position before it: the target's after its final
 * norm, or, to guess further, the block's own record.hidden.
 *   x = E norm(embedding) + H norm(given)        E and H side by side are the tensor eh_proj
 *   n = norm(layer(x));  logits = head n          the layer is one of the family's that attend
 * Equations: huggingface Qwen3.5's and DeepSeek-V3's released code; names: ggml-org/llama.cpp, src/llama-arch.cpp. */
#ifndef LUCE_MODEL_MTP_H
#define LUCE_MODEL_MTP_H

#include "model/family.h"

enum { MTP_LIKELY = 4 };            /* tokens of each row that it names (record.ids) */

struct mtp {
    const struct weight *join_embd, *join_hidden;       /* E, H [embd, embd] */
    const struct weight *embd_norm, *hidden_norm, *norm;
    const struct weight *embd, *head;                   /* its own or the target's */
};

/* Whether the file of this model has such a block. */
bool mtp_has(const struct model *target);
/* *out borrows the target and its file, and is closed first (model_close). LUCE_E_ARG: there is no block.
 * LUCE_E_FORMAT: tensors are missing or contradict the keys. */
luce_status mtp_open(struct model **out, const struct model *target, luce_error *err);

#endif
