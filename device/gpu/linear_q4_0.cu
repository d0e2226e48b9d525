/* device/gpu/linear_q4_0.cu - products of weights in this tile format (linear_narrow.cuh). */
#include "device/gpu/linear.cuh"

PRODUCT_FORMAT(q4_0, tile_q4_0)
