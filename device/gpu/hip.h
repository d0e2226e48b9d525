/* device/gpu/hip.h - the runtime's functions that HIP calls otherwise than CUDA, or does not have. hip.cuh has what
 * kernels use. */
#ifndef LUCE_DEVICE_GPU_HIP_H
#define LUCE_DEVICE_GPU_HIP_H

#include <hip/hip_runtime_api.h>

#define hipDeviceProp hipDeviceProp_t
#define hipDevAttrMaxSharedMemoryPerBlockOptin hipDeviceAttributeMaxSharedMemoryPerBlock
#define hipDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define hipDevAttrComputeCapabilityMajor hipDeviceAttributeComputeCapabilityMajor
#define hipDevAttrComputeCapabilityMinor hipDeviceAttributeComputeCapabilityMinor

static inline hipError_t hip_malloc_host(void **out, size_t bytes)
{
    return hipHostMalloc(out, bytes, hipHostMallocDefault);
}
static inline hipError_t hip_instantiate(hipGraphExec_t *out, hipGraph_t g, unsigned flags)
{
    (void)flags;
    return hipGraphInstantiate(out, g, NULL, NULL, 0);
}
#define hipMallocHost(out, bytes) hip_malloc_host((void **)(out), bytes)
#define hipFreeHost(p) hipHostFree(p)
#define hipGraphInstantiate(out, g, flags) hip_instantiate(out, g, flags)

/* A launch with its attributes; that it may overlap its predecessor is a hint that HIP has no word for. */
typedef struct {
    int id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
} hipLaunchAttribute;
enum { hipLaunchAttributeProgrammaticStreamSerialization };
typedef struct {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    hipStream_t stream;
    hipLaunchAttribute *attrs;
    unsigned numAttrs;
} hipLaunchConfig_t;

static inline hipError_t hip_launch(const hipLaunchConfig_t *c, const void *kernel, void **args)
{
    return hipLaunchKernel(kernel, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}
#define hipLaunchKernelExC(config, kernel, args) hip_launch(config, kernel, args)

#endif
