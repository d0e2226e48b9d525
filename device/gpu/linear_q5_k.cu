/* device/gpu/linear_q5_k.cu - products of weights in this tile format (linear_narrow.cuh). */
#include "device/gpu/linear.cuh"

PRODUCT_FORMAT(q5_k, tile_q5_k)
