/* tests/oracle.h - the stored answers of an oracle file (scripts/make-oracle-fixtures.py). */
#ifndef LUCE_TESTS_ORACLE_H
#define LUCE_TESTS_ORACLE_H

#include "tests/model_drive.h"

extern const char *const oracle_cases[];        /* ends with NULL */

struct oracle {
    int n, vocab, embd, layers, context;
    const int *tokens;
    const float *logits, *hidden;       /* [position][vocab], [layer][position][embd] or NULL */
};
/* Sequence i of the file; false past the end. */
bool oracle_get(struct oracle *o, const struct gguf *g, int i);
/* Largest difference; infinite when any of the two is NaN. */
double oracle_distance(const float *a, const float *b, size_t n);
/* Opens tests/fixtures/oracle/CASE.gguf without the line about unused tensors. */
bool oracle_open(struct gguf **g, struct model **m, const char *name);

#endif
