/* ops/case_step.h - between ops/cases.c and ops/case_step.c. */
#ifndef LUCE_OPS_CASE_STEP_H
#define LUCE_OPS_CASE_STEP_H

#include "ops/cases.h"

enum { QUANT_MOST = 256, BLOCK_MOST = 512 };    /* elements and bytes of a quantised block, at most */

uint64_t case_random(struct case_env *env);
/* About normal: four uniform numbers summed, deviation 1. */
float case_normal(struct case_env *env);
/* Rows of a domain in the case's step. */
int case_rows(const struct case_env *env, enum domain d);
/* Fills sequences, rows and wanted rows of env->step. */
void case_step(struct case_env *env);
/* Once the cache's layout is known: page tables (edits of the step) and page images. */
luce_status case_pages(struct case_env *env, luce_error *err);

#endif
