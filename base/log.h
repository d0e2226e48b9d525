/* base/log.h - levelled log to standard error, one line a message. Threads: any. */
#ifndef LUCE_BASE_LOG_H
#define LUCE_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
/* Messages above this level are dropped; LOG_WARN at start. */
void log_set_level(enum log_level level);
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

#endif
