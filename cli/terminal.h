/* cli/terminal.h - standard input, Ctrl-C and progress bars of the commands. */
#ifndef LUCE_CLI_TERMINAL_H
#define LUCE_CLI_TERMINAL_H

#include "base/buf.h"
#include "cli/options.h"

/* Before anything else: standard files that the caller has closed fail when they are used, and no other
 * file takes their number; a closed pipe is a write error, not a signal. */
void standard_files_prepare(void);

/* Reads all of standard input. */
luce_status input_read(struct buf *out, luce_error *err);
/* Reads a line without its end; false at the end of input. */
bool input_line(struct buf *out);
/* The prompt of run: --prompt, --file or standard input. */
luce_status input_prompt(const struct options *o, struct buf *out, luce_error *err);

/* From here on Ctrl-C and SIGTERM set a mark instead of ending the process; a second one of the same kind
 * ends it. interrupt_clear forgets a Ctrl-C. */
void interrupt_catch(void);
bool interrupted(void *unused);
int interrupt_signal(void);                     /* which it was; 0: none */
void interrupt_clear(void);

/* Prints text of a model. A terminal gets no control characters but newline and tab: they are shown as \x1b, since
 * a model's words must not move the cursor or write the clipboard. Files and pipes get all bytes. */
bool show_text(const char *bytes, size_t n);

bool error_is_terminal(void);
/* "what  [=====     ]  52 %" on standard error, when that is a terminal; at 1 it goes away. */
void progress_show(const char *what, double share);

#endif
