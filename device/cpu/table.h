/* device/cpu/table.h - the op bodies and the row of one instruction set. The including file defines
 * K(name), the suffix of its functions, and includes the lanes of its instruction set. */
#include "device/cpu/group.h"
#include "device/cpu/share.h"
#include "device/cpu/vec.h"

#include "device/cpu/quantise.h"
#include "device/cpu/norm.h"
#include "device/cpu/conv.h"
#include "device/cpu/gate.h"
#include "device/cpu/rows.h"
#include "device/cpu/likely.h"
#include "device/cpu/sample.h"
#include "device/cpu/route.h"
#include "device/cpu/attn.h"
#include "device/cpu/rope_kv.h"
#include "device/cpu/recur.h"

#define OP_KERNELS                                                                        \
    {                                                                                     \
        [OP_EMBED] = K(embed), [OP_NORM] = K(norm), [OP_LINEAR] = job_linear,             \
        [OP_GLU] = job_glu, [OP_GATE] = K(gate), [OP_ROPE_KV] = K(rope_kv), [OP_ATTN] = K(attn),              \
        [OP_ROUTE] = K(route), [OP_MOE_GLU] = job_moe_glu, [OP_MOE_DOWN] = job_moe_down,    \
        [OP_SHORT_CONV] = K(short_conv), [OP_DELTA] = K(delta), [OP_GATED] = K(gated),                \
        [OP_CONV] = K(conv), [OP_TAKE] = K(take), [OP_ADD] = K(add), [OP_ARGMAX] = K(argmax),                  \
        [OP_LIKELY] = K(likely), [OP_SAMPLE] = K(sample), [OP_ACCEPT] = K(accept),         \
    }
#define QUANTISE_KERNELS { [X_BF16] = K(quantise_bf16), [X_Q8] = K(quantise_q8) }
