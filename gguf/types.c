/* gguf/types.c - see types.h. Ids: ggml-org/ggml docs/gguf.md and ggml/include/ggml.h; 100 to 107
 * are the ROCm family of Luce-Org/lucebox. Other forks use ids from 43 on for formats of their own,
 * so an id outside this table is never guessed from a tensor's size. */
#include "gguf/types.h"

#include "base/mem.h"

static const struct { const char *name; unsigned bytes; } value_types[GGUF_N_TYPES] = {
    [GGUF_U8] = { "u8", 1 },    [GGUF_I8] = { "i8", 1 },         [GGUF_U16] = { "u16", 2 },
    [GGUF_I16] = { "i16", 2 },  [GGUF_U32] = { "u32", 4 },       [GGUF_I32] = { "i32", 4 },
    [GGUF_F32] = { "f32", 4 },  [GGUF_BOOL] = { "bool", 1 },     [GGUF_STRING] = { "string", 0 },
    [GGUF_ARRAY] = { "array", 0 }, [GGUF_U64] = { "u64", 8 },    [GGUF_I64] = { "i64", 8 },
    [GGUF_F64] = { "f64", 8 },
};

const char *gguf_type_name(enum gguf_type t)
{
    return (unsigned)t < GGUF_N_TYPES ? value_types[t].name : "unknown";
}

unsigned gguf_type_bytes(enum gguf_type t)
{
    return (unsigned)t < GGUF_N_TYPES ? value_types[t].bytes : 0;
}

static const struct gguf_tensor_type tensor_types[] = {
    { 0, "f32", 1, 4 },          { 1, "f16", 1, 2 },          { 2, "q4_0", 32, 18 },
    { 3, "q4_1", 32, 20 },       { 6, "q5_0", 32, 22 },       { 7, "q5_1", 32, 24 },
    { 8, "q8_0", 32, 34 },       { 10, "q2_K", 256, 84 },     { 11, "q3_K", 256, 110 },
    { 12, "q4_K", 256, 144 },    { 13, "q5_K", 256, 176 },    { 14, "q6_K", 256, 210 },
    { 16, "iq2_xxs", 256, 66 },  { 17, "iq2_xs", 256, 74 },   { 18, "iq3_xxs", 256, 98 },
    { 19, "iq1_s", 256, 50 },    { 20, "iq4_nl", 32, 18 },    { 21, "iq3_s", 256, 110 },
    { 22, "iq2_s", 256, 82 },    { 23, "iq4_xs", 256, 136 },  { 24, "i8", 1, 1 },
    { 25, "i16", 1, 2 },         { 26, "i32", 1, 4 },         { 27, "i64", 1, 8 },
    { 28, "f64", 1, 8 },         { 29, "iq1_m", 256, 56 },    { 30, "bf16", 1, 2 },
    { 34, "tq1_0", 256, 54 },    { 35, "tq2_0", 256, 66 },    { 39, "mxfp4", 32, 17 },
    { 40, "nvfp4", 64, 36 },     { 41, "q1_0", 128, 18 },     { 42, "q2_0", 64, 18 },
    { 100, "rocmfp4", 32, 18 },  { 101, "rocmfp4_fast", 32, 17 },
    { 102, "rocmfp6", 32, 26 },  { 103, "rocmfp8", 32, 33 },  { 104, "rocmfp3", 32, 14 },
    { 105, "rocmfp3_mix", 32, 14 }, { 106, "rocmfp2_mix", 32, 10 }, { 107, "rocmfp2", 32, 10 },
};

const struct gguf_tensor_type *gguf_tensor_type_at(size_t i)
{
    return i < COUNT(tensor_types) ? &tensor_types[i] : NULL;
}

const struct gguf_tensor_type *gguf_tensor_type_find(uint32_t id)
{
    for (size_t i = 0; i < COUNT(tensor_types); i++)
        if (tensor_types[i].id == id) return &tensor_types[i];
    return NULL;
}

const char *gguf_refused_type(uint32_t id)
{
    switch (id) {
    case 4: case 5: case 31: case 32: case 33: case 36: case 37: case 38:
        return "was removed from the format; get a newer conversion of the model";
    case 9: case 15:
        return "is for activations and never stored; the file was written by a faulty tool";
    default:
        return "is not known; the file needs a newer or another program, or is damaged";
    }
}
