/* device/gpu/linear_q6_k.cu - products of weights in this tile format (linear_narrow.cuh). */
#include "device/gpu/linear.cuh"

PRODUCT_FORMAT(q6_k, tile_q6_k)
