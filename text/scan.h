/* text/scan.h - the scanners that pre-tokenizer rows are made of; see pretokenize.h for the call.
 * Each comment gives the expression that a scanner stands for, WORD being step->letters and
 * \s the White_Space property. `isolate` keeps matches and the text between them as pieces,
 * `cut before` cuts where a match begins. */
#ifndef LUCE_TEXT_SCAN_H
#define LUCE_TEXT_SCAN_H

#include "text/pretokenize.h"

/* isolate  's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
const char *scan_gpt2(const struct split_step *s, const char *p, const char *end);

/* isolate  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?WORD+|\p{N}{1,max}
 *          | ?[^\s WORD \p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
const char *scan_words(const struct split_step *s, const char *p, const char *end);

/* isolate  [^\r\n\p{L}\p{N}]?A*B+|[^\r\n\p{L}\p{N}]?A+B*|\p{N}{1,max}
 *          | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * with A = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], B = [\p{Ll}\p{Lm}\p{Lo}\p{M}], and after either of the
 * first two, if step->contractions, (?i:'s|'t|'re|'ve|'m|'ll|'d)? */
const char *scan_cased(const struct split_step *s, const char *p, const char *end);

/* isolate  (ASCII punctuation or symbol)[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
 *          | ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
const char *scan_deepseek(const struct split_step *s, const char *p, const char *end);

/* isolate  SET{1,max}, SET being step->set */
const char *scan_set(const struct split_step *s, const char *p, const char *end);
/* isolate  [\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+ */
const char *scan_han_kana(const struct split_step *s, const char *p, const char *end);
/* isolate  [\p{P}\$\+<=>\^~\|]+ */
const char *scan_punct(const struct split_step *s, const char *p, const char *end);
/* isolate  [0-9][0-9][0-9] */
const char *scan_three_digits(const struct split_step *s, const char *p, const char *end);

/* cut before  (?:\r?\n)+(?!\r?\n) */
const char *scan_before_lines(const struct split_step *s, const char *p, const char *end);
/* isolate  [^\n]+|\n+ */
const char *scan_lines(const struct split_step *s, const char *p, const char *end);

#endif
