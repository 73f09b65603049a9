// What the driver says of a device.
#ifndef JAXPIPE_CUDA_DEVICE_H_
#define JAXPIPE_CUDA_DEVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "status.h"

namespace jaxpipe::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int64_t l2_bytes = 0;
  int64_t shared_per_block_optin_bytes = 0;
};

Status DescribeDevice(const Driver& driver, CUdevice device, DeviceInfo* info);

// All devices that the driver shows.
Status ListDevices(const Driver& driver, std::vector<DeviceInfo>* devices);

}  // namespace jaxpipe::cuda

#endif  // JAXPIPE_CUDA_DEVICE_H_
