/* base/queue.h - a bounded first-in, first-out queue of pointers between threads.
 * What is pushed belongs to the queue until somebody pops it. Threads: any number of each side. */
#ifndef LUCE_BASE_QUEUE_H
#define LUCE_BASE_QUEUE_H

#include "base/error.h"

struct queue;
/* Room for `capacity` pointers (at least 1). LUCE_E_ARG, LUCE_E_NOMEM. */
luce_status queue_new(struct queue **out, int capacity, luce_error *err);
/* NULL is fine. Pointers still inside are not freed: pop them first. Nobody may wait on it. */
void queue_free(struct queue *q);
/* Adds item (not NULL); waits while the queue is full. False when closed: the item stays the
 * caller's. */
bool queue_push(struct queue *q, void *item);
/* The same without waiting; false also when full. */
bool queue_try_push(struct queue *q, void *item);
/* The oldest item; waits while the queue is empty. NULL: closed and empty. */
void *queue_pop(struct queue *q);
/* The same, waiting at most `seconds` (0: not at all); NULL also when nothing came. */
void *queue_pop_within(struct queue *q, double seconds);
/* No more pushes; wakes whoever waits. What is inside can still be popped. */
void queue_close(struct queue *q);
/* Items inside at this moment. */
int queue_length(struct queue *q);

#endif
