/* tests/model_drive.h - drives a model by hand, one sequence: through the reference interpreter or a
 * device, in steps of any width and class. */
#ifndef LUCE_TESTS_MODEL_DRIVE_H
#define LUCE_TESTS_MODEL_DRIVE_H

#include "device/device.h"
#include "model/family.h"
#include "ops/interp.h"
#include "tests/test.h"

struct drive {
    struct model *model;
    struct tape tape;
    struct record rec;
    struct kv_layout kv;
    struct interp *interp;      /* or a device: */
    struct device *device;
    struct device_cache *cache;
    struct program *program[2]; /* by class */
    struct plan plan[2];
    int cache_pages;
    enum step_class class;      /* of the last step */
    struct step *step;
    int past, in_bank;          /* committed positions; rows of the last narrow step */
};
/* Opens an oracle or model file. false after a failed check. */
bool model_from_file(struct gguf **g, struct model **m, const char *path);
/* Records the model (every layer kept) and opens the interpreter; exact f64 keys and values, or rounded
 * to this cache format. */
bool drive_open(struct drive *d, struct model *m, uint32_t round_format, int max_positions);
/* The same on a device that holds the weights (drive_upload). */
bool drive_open_device(struct drive *d, struct model *m, struct device *device, uint32_t cache_format,
                       int max_positions);
bool drive_upload(struct device *device, struct model *m);
void drive_release(struct device *device, struct model *m);
/* Rows of a value of the last step, as f32. */
void drive_read(const struct drive *d, struct val v, int n_rows, float *out);
void drive_close(struct drive *d);
/* The next n tokens of the sequence (at most 64), each with its logits wanted; in one step. */
bool drive_step(struct drive *d, const int *tokens, int n, enum step_class class);
/* The kept value "layer.N". */
struct val drive_layer(const struct drive *d, int layer);
/* Forgets the sequence. */
void drive_restart(struct drive *d);

#endif
