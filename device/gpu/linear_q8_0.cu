/* device/gpu/linear_q8_0.cu - products of weights in this tile format (linear_narrow.cuh). */
#include "device/gpu/linear.cuh"

PRODUCT_FORMAT(q8_0, tile_q8_0)
