/* text/pretokenize.c - the table of pre-tokenizers; see pretokenize.h. */
#include "text/pretokenize.h"

#include "base/mem.h"
#include "text/scan.h"
#include "text/unicode.h"

enum { LETTER = CLASS_LETTER, MARKED = CLASS_LETTER | CLASS_MARK };

static const struct pretokenizer rows[] = {
    { .names = "gpt-2 gpt2 phi-2 mpt olmo jais trillion",
      .steps = { { .next = scan_gpt2 } } },
    { .names = "smollm starcoder refact command-r codeshell",
      .steps = { { .next = scan_set, .set = CLASS_NUMBER, .max = 1 }, { .next = scan_gpt2 } } },
    { .names = "llama-bpe llama3 llama-v3 pixtral lfm2 falcon3",
      .steps = { { .next = scan_words, .letters = LETTER, .max = 3 } },
      .ignore_merges = true, .add_bos = true },
    { .names = "qwen2 deepseek-r1-qwen megrez",
      .steps = { { .next = scan_words, .letters = LETTER, .max = 1 } }, .nfc = true },
    { .names = "qwen35",
      .steps = { { .next = scan_words, .letters = MARKED, .max = 1 } }, .nfc = true },
    { .names = "laguna",
      .steps = { { .next = scan_before_lines },
                 { .next = scan_words, .letters = LETTER, .max = 1 } },
      .add_bos = true },
    { .names = "deepseek-v3 joyai-llm hunyuan-dense",
      .steps = { { .next = scan_set, .set = CLASS_NUMBER, .max = 3 }, { .next = scan_han_kana },
                 { .next = scan_deepseek } } },
    { .names = "bailingmoe bailingmoe2 llada-moe",
      .steps = { { .next = scan_words, .letters = LETTER, .max = 1 } } },
    { .names = "tekken",
      .steps = { { .next = scan_cased, .max = 1 } }, .ignore_merges = true, .add_bos = true },
    { .names = "gpt-4o llama4",
      .steps = { { .next = scan_cased, .max = 3, .contractions = true } } },
    { .names = "default",
      .steps = { { .next = scan_punct }, { .next = scan_gpt2 },
                 { .next = scan_set, .set = CLASS_NUMBER }, { .next = scan_three_digits } } },
    { .names = "gemma4", .steps = { { .next = scan_lines } }, .add_bos = true },
};

const struct pretokenizer *pretokenizer_at(size_t i)
{
    return i < COUNT(rows) ? &rows[i] : NULL;
}

const struct pretokenizer *pretokenizer_find(struct str name)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        for (const char *p = rows[i].names; *p;) {
            size_t len = strcspn(p, " ");
            if (str_eq((struct str){ p, len }, name)) return &rows[i];
            p += len + (p[len] == ' ');
        }
    return NULL;
}

bool split_next(struct splitter *s, struct str *piece)
{
    const char *p = s->p, *end = s->end;
    if (p == end) return false;
    const struct split_step *steps = s->row->steps;
    /* All steps' pieces begin at p or before it; those that end at p are renewed, coarse ones
     * first. */
    for (int i = 0; i < SPLIT_STEPS && steps[i].next; i++) {
        if (!s->ends[i] || s->ends[i] == p) s->ends[i] = steps[i].next(&steps[i], p, end);
        end = s->ends[i];
    }
    *piece = (struct str){ p, (size_t)(end - p) };
    s->p = end;
    return true;
}
