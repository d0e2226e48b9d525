/* device/gpu/linear_f16.cu - products of weights in this tile format (linear_narrow.cuh). */
#include "device/gpu/linear.cuh"

PRODUCT_FORMAT(f16, tile_f16)
