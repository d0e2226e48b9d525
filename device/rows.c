/* device/rows.c - results on their way to where they are wanted. */
#include <string.h>

#include "device/device.h"

void rows_put(const struct rows_read *r, const void *from, size_t row_bytes)
{
    size_t stride = r->stride ? r->stride : row_bytes;
    for (int i = 0; i < r->n_rows; i++)
        memcpy((uint8_t *)r->to + (size_t)i * stride, (const uint8_t *)from + (size_t)i * row_bytes, row_bytes);
}
