#include "cuda/device.h"

namespace jaxpipe::cuda {

Status DescribeDevice(const Driver& driver, CUdevice device, DeviceInfo* info) {
  char name[128] = "";
  JAXPIPE_RETURN_IF_ERROR(
      Check(driver, driver.DeviceGetName(name, sizeof name, device), "cuDeviceGetName", ""));
  info->name = name;
  int l2_bytes = 0, shared_bytes = 0;
  const struct {
    int attribute;
    int* value;
  } kQueries[] = {
      {kComputeCapabilityMajor, &info->major},        {kComputeCapabilityMinor, &info->minor},
      {kMultiprocessorCount, &info->multiprocessors}, {kL2CacheBytes, &l2_bytes},
      {kMaxSharedPerBlockOptin, &shared_bytes},
  };
  for (const auto& query : kQueries) {
    JAXPIPE_RETURN_IF_ERROR(
        Check(driver, driver.DeviceGetAttribute(query.value, query.attribute, device),
              "cuDeviceGetAttribute", "attribute " + std::to_string(query.attribute)));
  }
  info->l2_bytes = l2_bytes;
  info->shared_per_block_optin_bytes = shared_bytes;
  return Status();
}

Status ListDevices(const Driver& driver, std::vector<DeviceInfo>* devices) {
  int count = 0;
  JAXPIPE_RETURN_IF_ERROR(Check(driver, driver.DeviceGetCount(&count), "cuDeviceGetCount", ""));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    DeviceInfo info;
    JAXPIPE_RETURN_IF_ERROR(
        Check(driver, driver.DeviceGet(&device, ordinal), "cuDeviceGet", std::to_string(ordinal)));
    JAXPIPE_RETURN_IF_ERROR(DescribeDevice(driver, device, &info));
    devices->push_back(std::move(info));
  }
  return Status();
}

}  // namespace jaxpipe::cuda
